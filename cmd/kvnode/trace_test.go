package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// The exit code says whether all of the files could be judged, and was allowed.
func TestTraceJudge(t *testing.T) {
	member := leasetrace.Process{
		Ended: true,
		Start: leasetrace.Start{ID: 0xa1, At: 5, Incarnation: 7, Duration: 100, MaxClockSkew: 10, MaxPromise: 100, TransferTimeout: 100},
		Events: []leasetrace.Event{
			{Seq: 1, Kind: leasetrace.KindVoters, At: 5},
			{Seq: 2, Kind: leasetrace.KindView, At: 5, Reading: 5, Status: leaderlease.StatusNotLeader},
		},
	}
	wrong, gap := member, member
	wrong.Events = []leasetrace.Event{member.Events[0], {Seq: 2, Kind: leasetrace.KindView, At: 5, Reading: 5, Status: leaderlease.StatusValid}}
	gap.Events = []leasetrace.Event{member.Events[0], {Seq: 3, Kind: leasetrace.KindView, At: 5, Reading: 5, Status: leaderlease.StatusNotLeader}}
	file := func(name string, p leasetrace.Process) string { return traceFile(t, name, p) }
	for _, tc := range []struct {
		name, file, stdout, stderr string
		code                       int
	}{
		{"right", file("right", member), "member a1, process 7: judged up to event 2\n", "", exitOK},
		{"wrong", file("wrong", wrong), "REFUSED", "readers are shown", exitFailed},
		{"with a gap", file("gap", gap), "event 1, where events 2 to 2 are missing", "is judged up to event 1", exitFailed},
		{"no trace", file("text", member) + "/", "", "not a directory", exitFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := kvnode("trace", "judge", tc.file)
			if code != tc.code || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.stderr) {
				t.Errorf("kvnode trace judge = %d %s %s, want %d %s %s", code, stdout, stderr, tc.code, tc.stdout, tc.stderr)
			}
		})
	}
}

func traceFile(t *testing.T, name string, p leasetrace.Process) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := leasetrace.Write(f, []leasetrace.Process{p}); err != nil {
		t.Fatal(err)
	}
	return path
}

// Members are called as their files, and the page says what the judge does.
func TestTracePage(t *testing.T) {
	member := leasetrace.Process{
		Ended:  true,
		Start:  leasetrace.Start{ID: 0xa1, At: 5, Incarnation: 7, Duration: 100, MaxClockSkew: 10, MaxPromise: 100, TransferTimeout: 100},
		Events: []leasetrace.Event{{Seq: 1, Kind: leasetrace.KindVoters, At: 5}},
	}
	code, stdout, stderr := kvnode("trace", "page", traceFile(t, "n7.trace", member))
	if code != exitOK || !strings.HasPrefix(stdout, "<!doctype html>") || !strings.Contains(stdout, `"id":"a1","name":"n7"`) ||
		!strings.Contains(stdout, "1 events of 1 processes are judged") {
		t.Errorf("kvnode trace page = %d %s %s, want a page with n7", code, stdout, stderr)
	}
	if code, _, stderr := kvnode("trace", "page", t.TempDir()); code != exitFailed || stderr == "" {
		t.Errorf("kvnode trace page of a directory = %d %s, want it to fail", code, stderr)
	}
}

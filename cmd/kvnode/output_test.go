package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/server/status"
)

// hostile is a member name with a line break, a color, a cleared screen in both
// encodings, and right-to-left text.
const hostile = "a\nb\x1b[31mc\u009b2Jd\u202ee\U000e0001\x7f"

// strange returns answers in which every text is hostile and every name is long.
func strange() []answer {
	long := hostile + strings.Repeat("x", 60_000)
	return []answer{
		{Endpoint: "h:1", Status: &status.Report{
			Name: long, Role: hostile, Lease: status.Lease{State: hostile, Error: hostile}, Reads: map[string]uint64{hostile: 1},
			Awaited: []string{long}, ClusterVersionKeptBy: []string{long}, Error: hostile,
			Peers: []status.Peer{{ID: "1", Name: long}, {ID: hostile, Connected: true, ClockSuspect: true}},
		}},
		{Endpoint: "h:2", Error: long},
	}
}

func wantPrintable(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			t.Errorf("%s holds %U, want it escaped: %.300q", what, r, text)
			return
		}
	}
}

// Text of members cannot control the terminal or leave its cell of the table.
func TestStatusOfAStrangeMember(t *testing.T) {
	var table, lines strings.Builder
	if err := errors.Join((&asker{output: "table"}).print(&table, strange()), (&asker{output: "json"}).print(&lines, strange())); err != nil {
		t.Fatal(err)
	}
	wantPrintable(t, "the table", table.String())
	wantPrintable(t, "JSON", lines.String())
	if n := strings.Count(table.String(), "\n"); n != 3 {
		t.Errorf("the table of two members has %d lines, want 3", n)
	}
	// The table's columns are padded to the longest cell.
	if n := table.Len(); n > 8<<10 {
		t.Errorf("the table of two members has %d bytes, want its cells cut", n)
	}
	var back []answer
	if err := json.Unmarshal([]byte(lines.String()), &back); err != nil || len(back) != 2 || back[0].Status.Name != strange()[0].Status.Name {
		t.Errorf("JSON does not say what the members said: %v", err)
	}
}

// Logs and errors are escaped for terminals, too.
func TestLogsAndErrorsArePrintable(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var stderr buffer
		log, err := newLogger(&System{Stderr: &stderr}, settings.Log{Level: "info", Format: format})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("m", "name", hostile, "error", errors.New(hostile), "long", strings.Repeat("x", 60_000))
		log.close()
		wantPrintable(t, "a log in "+format, stderr.String())
		if n := len(stderr.String()); n > 2*loggedBytes || !strings.Contains(stderr.String(), "(60000 bytes)") {
			t.Errorf("a text of 60,000 bytes makes a line of %d in %s, want it cut, and its length said", n, format)
		}
	}
	_, _, stderr := kvnode("wal", "verify", "/nowhere/"+hostile)
	wantPrintable(t, "an error", stderr)
	_, _, stderr = kvnode("serve", "--validate", "--data-dir", t.TempDir(), "--name", hostile)
	wantPrintable(t, "a refusal", stderr)
	if !strings.Contains(stderr, "--name") {
		t.Errorf("--name %q --validate says %q, want it refused", hostile, stderr)
	}
}

package leasetrace_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

func written(t *testing.T, all []leasetrace.Process) string {
	t.Helper()
	var b bytes.Buffer
	if err := leasetrace.Write(&b, all); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestATraceSurvivesItsFile(t *testing.T) {
	full := leasetrace.Process{Ended: true}
	fill(reflect.ValueOf(&full.Start).Elem())
	for k := range leasetrace.NumKinds {
		var e leasetrace.Event
		fill(reflect.ValueOf(&e).Elem())
		e.Seq, e.Kind, e.Message, e.Status = uint64(k+1), leasetrace.Kind(k), raftpb.MsgTimeoutNow, leaderlease.StatusMargin
		e.Role = 0
		if e.Kind == leasetrace.KindRaft {
			e.Role = raft.StatePreCandidate
		}
		if e.Kind != leasetrace.KindNone {
			full.Events = append(full.Events, e)
		}
	}
	want := append(story(t), full)
	got, err := leasetrace.Read(strings.NewReader(written(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Read(Write(all)) =\n%+v, want\n%+v", got, want)
	}
}

// fill gives each field a distinct value.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int32, reflect.Int64:
			f.SetInt(int64(1000 + i))
		case reflect.Uint64:
			f.SetUint(1<<63 + uint64(i))
		}
	}
}

func TestIncompleteTraces(t *testing.T) {
	text := written(t, story(t)[:1])
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	end := len(lines) - 1
	join := func(parts ...[]string) (all string) {
		for _, p := range parts {
			all += strings.Join(p, "")
		}
		return all
	}
	for _, tc := range []struct {
		name, text string
		events     int
		until, err string
	}{
		{"whole", text, end - 1, "", ""},
		{"without its end", join(lines[:end]), end - 1, "what came next was not written", ""},
		{"torn in its last line", join(lines[:end-1]) + lines[end-1][:20], end - 2, "what came next was not written", ""},
		{"torn, and the next process", join(lines[:end-1]) + lines[end-1][:20] + "\n" + lines[0], end - 2, "what came next was not written", ""},
		{"torn within", join(lines[:5], []string{lines[5][:20] + "\n"}, lines[6:]), 4, "line 6 cannot be read", "is judged up to event 4"},
		{"an event is missing", join(lines[:5], lines[6:]), 4, "events 5 to 5 are missing", "is judged up to event 4"},
		{"events are marked as lost", join(lines[:5], []string{"{\"lost\":7}\n"}), 4, "7 events are lost", "is judged up to event 4"},
		{"a kind of a later version", join(lines[:5], []string{`{"seq":5,"kind":"epitaph"}` + "\n"}, lines[6:]), 4, `"epitaph" is unknown`, "is judged up to event 4"},
		{"its end comes too early", join(lines[:5], lines[end:]), 4, "ends it at event", "is judged up to event 4"},
		{"something behind its end", text + "\n" + lines[end-1], end - 1, "follows the end", "is judged up to event"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all, err := leasetrace.Read(strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			v := leasetrace.Judge(all)
			if p := v.Processes[0]; p.Events != tc.events || !strings.Contains(p.Until, tc.until) || (tc.until == "") != (p.Until == "") {
				t.Errorf("judged up to event %d, %q, want %d, %q", p.Events, p.Until, tc.events, tc.until)
			}
			if err := v.Err(); fmt.Sprint(err) != "<nil>" && tc.err == "" || !strings.Contains(fmt.Sprint(err), tc.err) {
				t.Errorf("Err() = %v, want %q", err, tc.err)
			}
		})
	}
}

func TestFilesThatAreNoTraces(t *testing.T) {
	text := written(t, story(t)[:1])
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	torn, err := leasetrace.Read(strings.NewReader(lines[0][:20] + "\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	if err := leasetrace.Judge(torn).Err(); len(torn) != 2 || err == nil || !strings.Contains(err.Error(), "its first line cannot be read") {
		t.Errorf("%d processes, %v, want 2, and the first of them to be missed", len(torn), err)
	}
	for text, want := range map[string]string{
		"no\ntrace\n":                          "is not a trace",
		"no trace\n":                           "is not a trace",
		lines[1]:                               "is not a trace",
		strings.Replace(text, ":1,", ":2,", 1): "version 2, and this program reads version 1",
	} {
		if _, err := leasetrace.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read = %v, want an error that says %q", err, want)
		}
	}
}

// A shell pattern matches the older file as well.
func TestAFileThatIsNamedTwiceIsReadOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	lines := strings.SplitAfter(written(t, story(t)[:1]), "\n")
	for part, text := range map[string][]string{name + leasetrace.OlderSuffix: lines[:5], name: append(lines[:1:1], lines[5:]...)} {
		if err := os.WriteFile(part, []byte(strings.Join(text, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, names := range [][]string{{name}, {name, name + leasetrace.OlderSuffix}, {name + leasetrace.OlderSuffix, name, name}} {
		all, err := leasetrace.ReadFiles(names...)
		if err != nil {
			t.Fatal(err)
		}
		if err := leasetrace.Judge(all).Err(); err != nil || len(all) != 1 {
			t.Errorf("ReadFiles(%v) = %d processes, judged %v, want 1", names, len(all), err)
		}
	}
}

// sole is a Lease that makes an event for each call of event.
func sole(t *testing.T) (trace *leasetrace.Trace, event func()) {
	t.Helper()
	m := newMember(t, 1, raft.NewMemoryStorage(), time.Hour)
	return m.trace, func() { m.SetDiskStalled(true) }
}

func TestARecorderAppends(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			trace, event := sole(t)
			r, err := leasetrace.Record(name, trace, func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			event()
			time.Sleep(leasetrace.ReadEvery)
			synctest.Wait()
			event()
			r.Close()
			r.Close()
		})
	}
	all, err := leasetrace.ReadFiles(name)
	if err != nil || len(all) != 2 {
		t.Fatalf("ReadFiles = %d processes, %v, want 2", len(all), err)
	}
	if v := leasetrace.Judge(all); v.Err() != nil || v.Processes[0].Until+v.Processes[1].Until != "" || v.Kinds[leasetrace.KindDisk] != 4 {
		t.Errorf("%v\n%v\nwant 4 calls of SetDiskStalled, and both ends", v.Err(), v)
	}
}

// A full file is renamed and replaces the older one, so the beginning of the trace is lost.
func TestARecorderBoundsItsFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	const limit = 10_000
	var at []uint64
	synctest.Test(t, func(t *testing.T) {
		trace, event := sole(t)
		r, err := leasetrace.RecordUpTo(name, trace, limit, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			for range 20 {
				event()
			}
			time.Sleep(leasetrace.ReadEvery)
			synctest.Wait()
			all, err := leasetrace.ReadFiles(name)
			if err != nil || len(all) != 1 {
				t.Fatalf("ReadFiles = %d processes, %v, want 1", len(all), err)
			}
			at = append(at, all[0].Events[0].Seq)
		}
		r.Close()
	})
	for _, part := range []string{name, name + leasetrace.OlderSuffix} {
		if info, err := os.Stat(part); err != nil || info.Size() > limit+5_000 {
			t.Errorf("%s has %d bytes, want about %d at most", part, info.Size(), limit)
		}
	}
	if at[0] != 1 || at[len(at)-1] < 100 {
		t.Errorf("the files begin at event %d at first and at %d at last, want 1 and one far behind", at[0], at[len(at)-1])
	}
	all, _ := leasetrace.ReadFiles(name)
	if v := leasetrace.Judge(all); v.Refused != nil || v.Events() != 0 || v.Err() == nil {
		t.Errorf("%v, want nothing to be judged without its beginning", v)
	}
}

// A recorder must not rename a device such as /dev/stdout.
func TestARecorderDoesNotRenameDevices(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	if err := os.Symlink("/dev/null", name); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		trace, event := sole(t)
		r, err := leasetrace.RecordUpTo(name, trace, 1, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		event()
		time.Sleep(leasetrace.ReadEvery)
		synctest.Wait()
		r.Close()
	})
	if _, err := os.Stat(name + leasetrace.OlderSuffix); err == nil {
		t.Error("the recorder has renamed a device")
	}
}

func TestARecorderThatFailsEnds(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	synctest.Test(t, func(t *testing.T) {
		trace, event := sole(t)
		said := 0
		r, err := leasetrace.Record(name, trace, func(error) { said++ })
		if err != nil {
			t.Fatal(err)
		}
		leasetrace.Break(r) // its disk is gone
		for range 3 {
			event()
			time.Sleep(leasetrace.ReadEvery)
			synctest.Wait()
		}
		r.Close()
		if said != 1 {
			t.Errorf("failed is called %d times, want once", said)
		}
	})
	trace, _ := sole(t)
	if _, err := leasetrace.Record(t.TempDir(), trace, nil); err == nil {
		t.Error("a directory is taken for a file")
	}
	if _, err := leasetrace.Record(name, leasetrace.New(1), nil); err == nil {
		t.Error("a trace is recorded that has not begun")
	}
}

func TestARecorderMarksLostEvents(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	synctest.Test(t, func(t *testing.T) {
		trace, event := sole(t)
		r, err := leasetrace.Record(name, trace, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(leasetrace.ReadEvery)
		synctest.Wait()
		for range 3000 {
			event()
		}
		r.Close()
	})
	all, err := leasetrace.ReadFiles(name)
	if err != nil {
		t.Fatal(err)
	}
	v := leasetrace.Judge(all)
	if p := v.Processes[0]; p.Events != 2 || !p.Gap || !strings.Contains(p.Until, "events are lost") {
		t.Errorf("%v, want the first events and then the mark of a gap", v)
	}
}

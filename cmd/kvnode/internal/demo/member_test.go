package demo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testMember returns a member whose process is this binary, behaving as told.
func testMember(t *testing.T, behaviour string) (*member, chan *member) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(childVariable, behaviour)
	died := make(chan *member, 1)
	m := &member{name: "n1", log: filepath.Join(t.TempDir(), "n1.log"), argv: []string{self}, died: died}
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.kill(); err != nil {
			t.Error(err)
		}
	})
	return m, died
}

// awaitLog waits for the process's first word: only then does it hear signals.
func awaitLog(t *testing.T, m *member, text string) {
	t.Helper()
	for range 1000 {
		if log, err := os.ReadFile(m.log); err == nil && strings.Contains(string(log), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%q does not appear in %s", text, m.log)
}

func TestMemberThatDiesIsReportedWithItsLastWords(t *testing.T) {
	m, died := testMember(t, "dies")
	if got := <-died; got != m {
		t.Errorf("%v died, want %v", got, m)
	}
	<-m.current().done
	for _, want := range []string{"n1 ended by itself: exit status 3", m.log, "the disk is gone"} {
		if !strings.Contains(m.obituary(), want) {
			t.Errorf("obituary without %q: %s", want, m.obituary())
		}
	}
}

func TestMemberThatIsStoppedOrKilledHasNotDied(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(*member) error
	}{
		{"stopped in order", (*member).stop},
		{"stopped while paused", func(m *member) error { return errors.Join(m.pause(), m.stop()) }},
		{"killed", (*member).kill},
		{"killed while paused", func(m *member) error { return errors.Join(m.pause(), m.kill()) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			m, died := testMember(t, "obeys")
			awaitLog(t, m, "here")
			if err := end.do(m); err != nil {
				t.Error(err)
			}
			if m.running() || len(died) > 0 {
				t.Errorf("running %v, reported dead %d times; want neither", m.running(), len(died))
			}
			if err := m.pause(); err == nil {
				t.Error("a process that has ended was paused")
			}
			if err := m.start(); err != nil {
				t.Errorf("start again: %v", err)
			}
		})
	}
}

func TestMemberThatDoesNotStopInOrderIsAnError(t *testing.T) {
	m, _ := testMember(t, "lingers")
	awaitLog(t, m, "here")
	if err := m.stop(); err == nil || !strings.Contains(err.Error(), "cannot save") {
		t.Errorf("stop: %v, want an error with the end of the log", err)
	}
}

func TestRunningMemberIsNotStartedTwice(t *testing.T) {
	m, _ := testMember(t, "obeys")
	if err := m.start(); err == nil {
		t.Error("it was started")
	}
}

// A shell that is set up for etcd must not configure the demo's members.
func TestChildrenDoNotInheritServerSettings(t *testing.T) {
	got := childEnv([]string{"HOME=/h", "ETCD_NAME=x", "KVNODE_DATA_DIR=y", "ETCDCTL_API=3"})
	if want := "HOME=/h ETCDCTL_API=3"; strings.Join(got, " ") != want {
		t.Errorf("childEnv = %q, want %q", got, want)
	}
}

func TestDirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, fresh := range []string{dir, filepath.Join(dir, "new", "deep")} {
		if got, err := makeDir(fresh); err != nil || got != fresh {
			t.Errorf("makeDir(%q) = %q, %v; want it made", fresh, got, err)
		}
	}
	if _, err := makeDir(dir); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("makeDir of a directory with something in it: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(file); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("makeDir of a file: %v", err)
	}
}

func TestPortsAreDifferent(t *testing.T) {
	ports, err := freePorts(3 * size)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, p := range ports {
		if seen[p] {
			t.Errorf("%s is there twice", p)
		}
		seen[p] = true
	}
}

package testcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testMember returns a member whose process is this binary, behaving as told.
func testMember(t *testing.T, behaviour string) (*Member, chan *Member) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(childVariable, behaviour)
	died := make(chan *Member, 1)
	m := &Member{Name: "n1", LogFile: filepath.Join(t.TempDir(), "n1.log"), Program: Program{Path: self}, died: died}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	return m, died
}

// awaitLog waits for the process's first word: only then does it hear signals.
func awaitLog(t *testing.T, m *Member, text string) {
	t.Helper()
	for range 6000 {
		if log, err := os.ReadFile(m.LogFile); err == nil && strings.Contains(string(log), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%q does not appear in %s", text, m.LogFile)
}

func TestMemberThatDiesIsReportedWithItsLastWords(t *testing.T) {
	m, died := testMember(t, "dies")
	if got := <-died; got != m {
		t.Errorf("%v died, want %v", got, m)
	}
	<-m.current().done
	for _, want := range []string{"n1 ended by itself: exit status 3", m.LogFile, "the disk is gone"} {
		if !strings.Contains(m.ExitReport(), want) {
			t.Errorf("obituary without %q: %s", want, m.ExitReport())
		}
	}
}

func TestMemberThatIsStoppedOrKilledHasNotDied(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(*Member) error
	}{
		{"stopped in order", (*Member).Stop},
		{"stopped while paused", func(m *Member) error { return errors.Join(m.Pause(), m.Stop()) }},
		{"killed", (*Member).Kill},
		{"killed while paused", func(m *Member) error { return errors.Join(m.Pause(), m.Kill()) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			m, died := testMember(t, "obeys")
			awaitLog(t, m, "here")
			if err := end.do(m); err != nil {
				t.Error(err)
			}
			if m.Running() || len(died) > 0 {
				t.Errorf("running %v, reported dead %d times; want neither", m.Running(), len(died))
			}
			if err := m.Pause(); err == nil {
				t.Error("a process that has ended was paused")
			}
			if err := m.Start(); err != nil {
				t.Errorf("start again: %v", err)
			}
		})
	}
}

func TestMemberThatDoesNotStopInOrderIsAnError(t *testing.T) {
	m, _ := testMember(t, "lingers")
	awaitLog(t, m, "here")
	if err := m.Stop(); err == nil || !strings.Contains(err.Error(), "cannot save") {
		t.Errorf("stop: %v, want an error with the end of the log", err)
	}
}

func TestRunningMemberIsNotStartedTwice(t *testing.T) {
	m, _ := testMember(t, "obeys")
	if err := m.Start(); err == nil {
		t.Error("it was started")
	}
}

// What an earlier run has said does not make a later one ready.
func TestMemberThatWasNeverStarted(t *testing.T) {
	m := &Member{Name: "m1"}
	_, exit := m.WaitExit(t.Context())
	_, end := m.Terminate(t.Context())
	for what, err := range map[string]error{"WaitReady": m.WaitReady(t.Context()), "WaitExit": exit, "Terminate": end} {
		if err == nil || !strings.Contains(err.Error(), "m1 was never started") {
			t.Errorf("%s = %v, want that m1 was never started", what, err)
		}
	}
	if err := errors.Join(m.Stop(), m.Kill()); err != nil {
		t.Errorf("Stop and Kill = %v, want nothing", err)
	}
}

func TestMemberIsReadyOnceItsRunHasSaidSo(t *testing.T) {
	m, died := testMember(t, "serves")
	if err := m.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(childVariable, "dies")
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	<-died
	if err := m.WaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("WaitReady() = %v, want an error with the end of the log", err)
	}
}

// A shell that is set up for etcd must not configure members.
func TestMembersDoNotInheritServerSettings(t *testing.T) {
	t.Setenv("ETCD_NAME", "inherited")
	m, died := testMember(t, "dies")
	<-died
	if text := m.Log(); strings.Contains(text, "inherited") {
		t.Errorf("ETCD_NAME reaches the process: %s", text)
	}
	got := environment([]string{"HOME=/h", "ETCD_NAME=x", "KVNODE_DATA_DIR=y", "ETCDCTL_API=3"})
	if want := "HOME=/h ETCDCTL_API=3"; strings.Join(got, " ") != want {
		t.Errorf("environment = %q, want %q", got, want)
	}
}

func TestPortsAreDifferent(t *testing.T) {
	ports, err := freeAddrs(50)
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

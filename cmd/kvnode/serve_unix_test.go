//go:build unix

package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
)

// unit is what systemd hears of a unit of Type=notify.
type unit struct {
	t    *testing.T
	conn *net.UnixConn
	said []string
}

func newUnit(t *testing.T) *unit {
	t.Helper()
	addr := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	conn, err := net.ListenUnixgram("unixgram", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", addr.Name)
	return &unit{t: t, conn: conn}
}

// hears waits for a state that has such a line.
func (u *unit) hears(line string) {
	u.t.Helper()
	if err := u.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		u.t.Fatal(err)
	}
	for buf := make([]byte, 4096); ; {
		n, err := u.conn.Read(buf)
		if err != nil {
			u.t.Fatalf("systemd has heard %q, want %q: %v", u.said, line, err)
		}
		u.said = append(u.said, string(buf[:n]))
		for had := range strings.Lines(string(buf[:n])) {
			if strings.TrimSpace(had) == line {
				return
			}
		}
	}
}

// systemd hears that the member is ready, that it is alive, and that it stops.
func TestSystemdIsTold(t *testing.T) {
	u := newUnit(t)
	t.Setenv("WATCHDOG_USEC", "400000")
	s := serving(t)
	u.hears("READY=1")
	u.hears("WATCHDOG=1")
	u.hears("WATCHDOG=1")
	send(t, syscall.SIGTERM)
	u.hears("STOPPING=1")
	s.exits(exitOK)
	if first := u.said[0]; first != "STATUS=waiting for a leader" {
		t.Errorf("systemd hears %q first, want what the member waits for", first)
	}
}

// The watchdog reports a loop that does not turn, even if all else works.
func TestAWatchdogSeesALoopThatHangs(t *testing.T) {
	ticks := uint64(3)
	w := watchdog{ticks: func() uint64 { return ticks }}
	for _, step := range []struct {
		ticks uint64
		want  bool
	}{{3, true}, {3, false}, {4, true}, {4, false}, {4, false}, {9, true}} {
		ticks = step.ticks
		if got := w.turned(); got != step.want {
			t.Errorf("at %d ticks the loop has turned: %v, want %v", ticks, got, step.want)
		}
	}
}

// A supervisor sends the death notice and exits even if it cannot open its log: the directory is gone,
// or the log is a pipe, which cannot be opened before it has a reader.
func TestLateLoggerDoesNotBlock(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, filepath.Join(t.TempDir(), "gone", "log")} {
		var stderr bytes.Buffer
		const hangs = 20 * time.Second
		began := time.Now()
		reader := time.AfterFunc(hangs, func() { // or the test hangs
			if f, err := os.Open(pipe); err == nil {
				_ = f.Close()
			}
		})
		log := lateLogger(&System{Stderr: &stderr}, settings.Log{Outputs: []string{name}, Format: "json"})
		log.Info("told")
		log.close()
		took := time.Since(began)
		if got := stderr.String(); took >= hangs || !strings.Contains(got, `"told"`) || !strings.Contains(got, name) {
			t.Errorf("a log in %s was given up after %v, and standard error says %q; want the line, and why it is there", name, took, got)
		}
		reader.Stop()
	}
	f, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // the supervisor's open returns
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

//go:build unix

package cli

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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

// A loop that does not turn is not alive, whatever else works.
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

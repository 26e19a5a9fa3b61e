package supervisor

import (
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// The newest complete list counts. If the socket stays open, last waits for drainTime.
func TestNewestListCounts(t *testing.T) {
	w := readPeers(strings.NewReader(`{"hello":{"name":"a"}}{"hello":{"name":"b"},"peers":[{"id":2,"addrs":["x"]}]}{"hello":{"na`))
	if got := w.last(); got == nil || got.Hello.Name != "b" || len(got.Peers) != 1 {
		t.Errorf("last() = %+v, want the second", got)
	}
	synctest.Test(t, func(t *testing.T) {
		r, held := io.Pipe()
		defer held.Close()
		began := time.Now()
		if got := readPeers(r).last(); got != nil || time.Since(began) != drainTime {
			t.Errorf("last() of an open pipe = %v after %v, want nil after %v", got, time.Since(began), drainTime)
		}
	})
}

// blockedLog is a log that blocks, as a pipe without a reader does when it is full.
type blockedLog struct{ until chan struct{} }

func (l blockedLog) Write(b []byte) (int, error) {
	<-l.until
	return len(b), nil
}

// NotifyPeers returns although the log blocks.
func TestBlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := blockedLog{make(chan struct{})}
		defer close(log.until)
		began := time.Now()
		e := &Exit{State: &os.ProcessState{}}
		e.NotifyPeers(tlsconf.Config{}, slog.New(slog.NewTextHandler(log, nil)))
		if took := time.Since(began); took != 2*notifyTime {
			t.Errorf("NotifyPeers() took %v, want %v", took, 2*notifyTime)
		}
	})
}

// A socket without a greeting is not a supervisor's.
func TestParentWithoutGreeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, childs := net.Pipe()
		defer own.Close()
		defer childs.Close()
		if c, err := newClient(childs); err == nil {
			t.Errorf("newClient() = %v, want an error", c)
		}
	})
}

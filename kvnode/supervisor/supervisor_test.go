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

// The newest will that is whole counts, and a dead child is not waited for.
func TestTheNewestWillCounts(t *testing.T) {
	w := readWills(strings.NewReader(`{"hello":{"name":"a"}}{"hello":{"name":"b"},"peers":[{"id":2,"addrs":["x"]}]}{"hello":{"na`))
	if got := w.last(); got == nil || got.Hello.Name != "b" || len(got.Peers) != 1 {
		t.Errorf("last() = %+v, want the second", got)
	}
	synctest.Test(t, func(t *testing.T) {
		r, held := io.Pipe()
		defer held.Close()
		began := time.Now()
		if got := readWills(r).last(); got != nil || time.Since(began) != lastWords {
			t.Errorf("last() of a child whose pipe somebody holds = %v after %v, want none after %v", got, time.Since(began), lastWords)
		}
	})
}

// unread is a log that takes nothing any more, as a pipe that nobody reads.
type unread struct{ until chan struct{} }

func (u unread) Write(b []byte) (int, error) {
	<-u.until
	return len(b), nil
}

// A log that nobody reads keeps no member from being started again.
func TestALogThatNobodyReadsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := unread{make(chan struct{})}
		defer close(log.until)
		began := time.Now()
		d := &Death{State: &os.ProcessState{}}
		d.Announce(tlsconf.Config{}, slog.New(slog.NewTextHandler(log, nil)))
		if took := time.Since(began); took != 2*patience {
			t.Errorf("it has taken %v, want %v", took, 2*patience)
		}
	})
}

// Another parent, which has given its child a socket, and says nothing, is no guardian.
func TestAParentThatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, childs := net.Pipe()
		defer own.Close()
		defer childs.Close()
		if w, err := newWard(childs); err == nil {
			t.Errorf("newWard() = %v, want an error", w)
		}
	})
}

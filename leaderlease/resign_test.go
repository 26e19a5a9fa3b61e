package leaderlease

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// A loop that hangs has not said yet that raft has stepped down: what is handed back is of the
// reign that the lease knows, whatever its node has promised to another leader since.
func TestResignNamesTheReignsTerm(t *testing.T) {
	p := leading(t)
	p.clock.Advance(100 * ms)
	p.term = 3
	probe := p.message(raftpb.MsgHeartbeat, 2, 1)
	attachProbe(probe, core.Probe{Sent: 1, Duration: 900 * ms})
	if p.Incoming(probe); p.Info().Promise.Term != 3 {
		t.Fatalf("Info().Promise = %+v, want one of term 3", p.Info().Promise)
	}
	m, ok := p.Resign(2)
	if !ok {
		t.Fatal("Resign() = false, want true")
	}
	r, err := releaseOf(m)
	if want := (core.Release{Term: 2, At: p.clock.Now()}); m.GetTerm() != 2 || r != want || err != nil {
		t.Errorf("Resign() = a message of term %d with %+v, %v, want term 2 and %+v", m.GetTerm(), r, err, want)
	}
	if !releases(m, r) {
		t.Error("the receiver does not take it for a release")
	}
}

// It is about a leader without a clock, too: the newest good reading bounds what it has sent.
func TestResignWithAClockThatFails(t *testing.T) {
	p := leading(t)
	last := p.clock.Now()
	p.clock.reading.Store(0)
	m, ok := p.Resign(2)
	if r, err := releaseOf(m); !ok || r.At != last || err != nil {
		t.Errorf("Resign() = %+v, %v, %v, want a release at %d", r, ok, err, last)
	}
	p.want(core.Closed)
}

// Close before it does not take the word away, and once more it says the same.
func TestResignAfterClose(t *testing.T) {
	p := leading(t)
	p.Close()
	for range 2 {
		if m, ok := p.Resign(2); !ok || m.GetTerm() != 2 {
			t.Errorf("Resign() after Close = %v, %v, want a message of term 2", m, ok)
		}
	}
	p.want(core.Closed)
	p.follow(3, 2)
	if _, ok := p.Resign(2); ok {
		t.Error("Resign() of a follower = true, want false")
	}
}

// Whoever holds the lock may hang, as a logger of the embedder's does: who dies does not hang
// with it. A lock that is busy is waited for.
func TestResignDoesNotWaitForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t, bubbled)
		p.mu.Lock()
		begun := time.Now()
		if _, ok := p.Resign(2); ok || time.Since(begun) != lockPatience {
			t.Errorf("Resign() = %v after %v, want false after %v", ok, time.Since(begun), lockPatience)
		}
		time.AfterFunc(lockPatience/2, p.mu.Unlock)
		if _, ok := p.Resign(2); !ok {
			t.Error("Resign() = false though the lock was free in time, want true")
		}
		p.want(core.Closed)
	})
}

package leaderlease

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// shakyClock is a clock of a synctest bubble that can fail.
type shakyClock struct {
	clock.Clock
	failing atomic.Bool
}

func (c *shakyClock) Now() core.Instant {
	if c.failing.Load() {
		return 0
	}
	return c.Clock.Now()
}

// restartedAlone is the configuration of a sole voter that has been up before.
func restartedAlone(tb testing.TB, c *Config) {
	tb.Helper()
	s := bootstrapped(tb, 1)
	if err := s.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
		tb.Fatal(err)
	}
	c.Raft.Storage = s
}

// A clock that fails for a moment while a Ready is held back does not hold it
// for longer: how far a failed reading seems to be from the promise's end is
// the time since the machine was started.
func TestFailingClockDoesNotHoldReadyForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shaky := &shakyClock{Clock: clock.Runtime()}
		p := newPuppet(t, func(c *Config) {
			restartedAlone(t, c)
			c.Clock = shaky
		})
		shaky.failing.Store(true)
		began := time.Now()
		released := make(chan time.Duration)
		go func() {
			p.Ready(raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StatePreCandidate}})
			released <- time.Since(began)
		}()
		time.Sleep(10 * ms)
		shaky.failing.Store(false)
		if held := <-released; held < 900*ms || held > 1800*ms {
			t.Errorf("Ready() was held for %v, want the restart hold of 900ms and at most one more", held)
		}
	})
}

// Ready holds nothing back that a promise does not forbid.
func TestReadyIsHeldForASoleVoterOnly(t *testing.T) {
	tests := []struct {
		name  string
		amend func(*Config)
		role  raft.StateType
		want  time.Duration
	}{
		{"a sole voter in its restart hold", func(*Config) {}, raft.StateLeader, 900 * ms},
		{"that only follows", func(*Config) {}, raft.StateFollower, 0},
		{"with AsyncStorageWrites its vote is withheld instead", func(c *Config) { c.Raft.AsyncStorageWrites = true }, raft.StateCandidate, 0},
		{"one of three voters", func(c *Config) {
			c.Raft.Storage = bootstrapped(t, 1, 2, 3)
		}, raft.StateCandidate, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t, func(c *Config) {
					restartedAlone(t, c)
					c.Clock = clock.Runtime()
					tc.amend(c)
				})
				began := time.Now()
				p.Ready(raft.Ready{SoftState: &raft.SoftState{RaftState: tc.role}})
				if held := time.Since(began); held != tc.want {
					t.Errorf("Ready() was held for %v, want %v", held, tc.want)
				}
			})
		})
	}
}

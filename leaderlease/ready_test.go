package leaderlease

import (
	"errors"
	"strings"
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

// bound returns a puppet that follows node 2 and is bound to it by a promise.
func bound(tb testing.TB, amend ...func(*Config)) *puppet {
	tb.Helper()
	p := newPuppet(tb, amend...)
	p.follow(2, 2)
	p.promiseTo(2)
	return p
}

func inAsyncMode(c *Config) { c.Raft.AsyncStorageWrites = true }

// wantVoid fails the test unless m is what no raft steps.
func wantVoid(t *testing.T, what string, m *raftpb.Message) {
	t.Helper()
	cfg := puppetConfig(t).Raft
	cfg.Logger = quietLogger{}
	raw, err := raft.NewRawNode(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Step(m); !errors.Is(err, raft.ErrStepLocalMsg) {
		t.Errorf("%s is a %v in a copy of the Ready, and Step() = %v, want %v", what, m.GetType(), err, raft.ErrStepLocalMsg)
	}
}

// An embedder that sends from a copy of the Ready, and not what Ready leaves, sends no
// vote that a promise forbids.
func TestACopyOfTheReadyHoldsNoVoteOfABoundNode(t *testing.T) {
	p := bound(t)
	for _, typ := range []raftpb.MessageType{raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgVoteResp} {
		rd := raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgApp, 1, 3), p.message(typ, 1, 3), p.message(raftpb.MsgAppResp, 1, 3)}}
		copied := rd
		p.Lease.Ready(&rd)
		if len(rd.Messages) != 2 || len(copied.Messages) != 3 {
			t.Fatalf("Ready() with a %v leaves %d messages, %d in a copy, want 2 and 3", typ, len(rd.Messages), len(copied.Messages))
		}
		wantVoid(t, typ.String(), copied.Messages[1])
		if copied.Messages[0] != rd.Messages[0] || copied.Messages[2] != rd.Messages[1] {
			t.Errorf("Ready() with a %v leaves %v, want all else as it was", typ, rd.Messages)
		}
	}
}

// The same goes for what the storage thread is to deliver.
func TestACopyOfTheReadyHoldsNoVoteInResponses(t *testing.T) {
	p := bound(t, inAsyncMode)
	vote, ack := p.message(raftpb.MsgVoteResp, 1, 3), p.message(raftpb.MsgAppResp, 1, 2)
	write := &raftpb.Message{Type: raftpb.MsgStorageAppend.Enum(), To: new(raft.LocalAppendThread), Responses: []*raftpb.Message{vote, ack}}
	before := p.Stats().Withheld.VoteRespOut
	p.Ready(raft.Ready{Messages: []*raftpb.Message{write}})
	wantVoid(t, "the vote", vote)
	if got := write.GetResponses(); len(got) != 1 || got[0] != ack {
		t.Errorf("Responses = %v, want the MsgAppResp alone", got)
	}
	if got := p.Stats().Withheld.VoteRespOut - before; got != 1 {
		t.Errorf("Stats().Withheld.VoteRespOut = %d, want 1", got)
	}
}

// A request for votes waits for its term to be durable (V9), in a copy as well.
func TestACopyOfTheReadyHoldsNoVoteBeforeItsTerm(t *testing.T) {
	p := newPuppet(t, inAsyncMode)
	p.term = 5
	vote := p.message(raftpb.MsgVote, 1, 2)
	write := &raftpb.Message{Type: raftpb.MsgStorageAppend.Enum(), To: new(raft.LocalAppendThread), Term: new(p.term)}
	p.Ready(raft.Ready{HardState: p.hard(1), Messages: []*raftpb.Message{vote, write}})
	wantVoid(t, "the request", vote)
	if got := write.GetResponses(); len(got) != 1 || got[0].GetType() != raftpb.MsgVote || got[0].GetTo() != 2 || got[0].GetTerm() != 5 {
		t.Errorf("Responses = %v, want the MsgVote", got)
	}
}

// Heartbeats and their answers are stamped where they are.
func TestACopyOfTheReadyIsStamped(t *testing.T) {
	p := leading(t)
	m := p.message(raftpb.MsgHeartbeat, 1, 2)
	p.Ready(raft.Ready{Messages: []*raftpb.Message{m}})
	if _, err := probeOf(m); err != nil {
		t.Errorf("probe of the heartbeat in a copy: %v", err)
	}
}

// Answers to the lease's own requests are for the lease alone: an embedder that
// passes each ReadState to a reader of its own has no reader for them.
func TestReadyTakesItsOwnReadStatesOut(t *testing.T) {
	p := leading(t)
	theirs := raft.ReadState{Index: 7, RequestCtx: []byte("theirs")}
	for name, states := range map[string][]raft.ReadState{"alone": {}, "with others": {theirs}} {
		p.clock.Advance(usable)
		read := p.startRead()
		rd := raft.Ready{ReadStates: append(states, raft.ReadState{Index: p.last, RequestCtx: p.asked()})}
		p.complete(&rd)
		copied := rd
		p.Lease.Ready(&rd)
		if read.calls != 1 || read.err != nil {
			t.Errorf("%s: the read was answered %d times, %v, want once", name, read.calls, read.err)
		}
		if len(rd.ReadStates) != len(states) || len(copied.ReadStates) != len(states)+1 {
			t.Errorf("%s: Ready() leaves %v, of %v, want what is not the lease's", name, rd.ReadStates, copied.ReadStates)
		}
		for _, s := range rd.ReadStates {
			if string(s.RequestCtx) != "theirs" {
				t.Errorf("%s: Ready() leaves %v, want what is not the lease's", name, rd.ReadStates)
			}
		}
		p.renew()
	}
}

// A read on a member without a call of Ready says so.
func TestAReadBeforeAnyReadySaysWhatIsMissing(t *testing.T) {
	p := newPuppet(t)
	const missing = "Ready was not called"
	if o := p.startRead(); !errors.Is(o.err, ErrNoLease) || !strings.Contains(o.err.Error(), missing) {
		t.Errorf("StartRead() = %v, want ErrNoLease, and %q", o.err, missing)
	}
	p.follow(2, 0)
	if o := p.startRead(); !errors.Is(o.err, ErrNoLease) || strings.Contains(o.err.Error(), missing) {
		t.Errorf("StartRead() = %v after a Ready, want ErrNoLease alone", o.err)
	}
}

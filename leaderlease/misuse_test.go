package leaderlease

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

func voters(ids ...uint64) *raftpb.ConfState { return &raftpb.ConfState{Voters: ids} }

// misused fails the test unless leases are off for a rule that says want, and
// stay off.
func (p *puppet) misused(want string) {
	p.t.Helper()
	s := p.Info()
	m, ok := errors.AsType[*MisuseError](s.Err)
	if !ok || !strings.Contains(m.Text, want) || !strings.Contains(m.Error(), m.Text) || s.Status != core.Disabled {
		p.t.Fatalf("Info() = %v, error %v, want %v for a misuse: %q", s.Status, s.Err, core.Disabled, want)
	}
	_, err := p.Token()
	if m2, ok := errors.AsType[*MisuseError](err); !ok || m2 != m || !errors.Is(err, ErrNoLease) {
		p.t.Errorf("Token() = %v, want ErrNoLease with the misuse as its cause", err)
	}
	p.clock.Advance(ms)
	p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeat, 1, 2)}})
	p.want(core.Disabled)
}

func (p *puppet) sound() {
	p.t.Helper()
	if s := p.Info(); s.Status != core.Valid || s.Err != nil {
		p.t.Fatalf("Info() = %v, error %v, want a valid lease", s.Status, s.Err)
	}
}

func TestConfStateIsAwaited(t *testing.T) {
	p := leading(t)
	index := p.commitChanges(1)
	p.want(core.ConfPending)
	p.commitNew() // later Readys do not make up for it
	p.renew()
	p.want(core.ConfPending)
	p.ApplyConfState(voters(1, 2, 3))
	p.sound()
	p.Applied(index)
	p.Applied(p.last)
	p.sound()
}

// Rejected changes are told as well, with the configuration that stays.
func TestRejectedChangeIsTold(t *testing.T) {
	p := leading(t)
	index := p.commitChanges(1)
	p.ApplyConfState(voters(1, 2, 3))
	p.Applied(index)
	p.sound()
}

func TestForgottenConfStateIsDetected(t *testing.T) {
	p := leading(t)
	index := p.commitChanges(1)
	p.Applied(index - 1)
	if err := p.Info().Err; err != nil {
		t.Fatalf("Info().Err = %v before the change is applied, want none", err)
	}
	p.Applied(index)
	p.missing()
	p.ApplyConfState(voters(1, 2, 3)) // late
	p.sound()
}

func TestSeveralChangesInOneReady(t *testing.T) {
	t.Run("told one by one", func(t *testing.T) {
		p := leading(t)
		last := p.commitChanges(3)
		for i := range uint64(3) {
			p.want(core.ConfPending)
			p.ApplyConfState(voters(1, 2, 3))
			p.Applied(last - 2 + i)
		}
		p.sound()
	})
	t.Run("told of the first only", func(t *testing.T) {
		p := leading(t)
		last := p.commitChanges(2)
		p.ApplyConfState(voters(1, 2, 3))
		p.Applied(last - 1)
		p.want(core.ConfPending)
		p.Applied(last)
		p.missing()
	})
	t.Run("told of one, applied together", func(t *testing.T) {
		p := leading(t)
		last := p.commitChanges(2)
		p.ApplyConfState(voters(1, 2, 3))
		p.want(core.ConfPending)
		p.Applied(last)
		p.missing()
	})
	t.Run("never told", func(t *testing.T) {
		p := leading(t)
		p.Applied(p.commitChanges(3))
		p.missing()
	})
}

// With AsyncStorageWrites entries are applied while later Readys come; the
// lease waits for each change.
func TestChangesAreAppliedLate(t *testing.T) {
	p := leading(t, func(c *Config) { c.Raft.AsyncStorageWrites = true })
	first := p.commitChanges(1)
	p.commitNew()
	second := p.commitChanges(1)
	p.renew()
	p.want(core.ConfPending)
	p.ApplyConfState(voters(1, 2, 3))
	p.Applied(first)
	p.want(core.ConfPending)
	p.Applied(second - 1)
	p.want(core.ConfPending)
	p.ApplyConfState(voters(1, 2, 3))
	p.Applied(second)
	p.sound()
}

// A snapshot brings its configuration along, and settles what was open.
func TestSnapshotSettlesChanges(t *testing.T) {
	p := leading(t)
	index := p.commitChanges(2)
	p.want(core.ConfPending)
	p.restore(index+5, voters(1, 2, 3))
	if s := p.Info(); s.Status != core.Valid || s.Commit != index+5 {
		t.Errorf("Info() = %v, commit %d after the snapshot, want valid, %d", s.Status, s.Commit, index+5)
	}
	p.Applied(index + 5)
	p.sound()
	// What an apply thread says late about the older changes is void.
	p.ApplyConfState(voters(2, 3))
	p.ApplyConfState(voters(2, 3))
	p.sound()
	p.last = index + 5
	p.commitChanges(1)
	p.want(core.ConfPending)
	p.ApplyConfState(voters(1, 2))
	p.sound()
	p.restore(p.last+1, voters(2, 3))
	p.want(core.NotVoter)
}

// One call too many is about nothing, or was about another change: it turns leases
// off, before a lease is computed under voters that are none.
func TestConfStateToldOnceTooOften(t *testing.T) {
	p := leading(t)
	p.ApplyConfState(voters(1))
	p.misused("without a configuration change")

	p = leading(t)
	p.commitChanges(2)
	for range 2 {
		p.ApplyConfState(voters(1, 2, 3))
	}
	p.ApplyConfState(voters(1, 2))
	p.misused("without a configuration change")
}

// Saying once more what counts already is no misuse: some say what a snapshot that
// they began with has, or ask raft for the configuration by an empty change.
func TestConfStateThatCountsAlreadyIsNoMisuse(t *testing.T) {
	p := newPuppet(t)
	p.ApplyConfState(voters(1, 2, 3))
	p.lead(2)
	p.renew()
	p.ApplyConfState(voters(1, 2, 3))
	p.sound()
	p.want(core.Valid)
}

// An embedder tells of a rejection, and then applies the change all the same.
func TestConfStatesOfOneIndexAgree(t *testing.T) {
	p := leading(t)
	index := p.commitChanges(1)
	p.ApplyConfStateAt(index, voters(1, 2, 3))
	p.ApplyConfStateAt(index, voters(1, 2, 3, 4, 5))
	p.misused(fmt.Sprintf("ApplyConfState was called for index %d", index))
}

// With its index a call is matched with its change, however late it comes.
func TestConfStateIsMatchedByItsIndex(t *testing.T) {
	p := leading(t)
	old := p.commitChanges(1)
	p.restore(old+5, voters(1, 2, 3))
	p.last = old + 5
	index := p.commitChanges(2)
	p.ApplyConfStateAt(old, voters(1)) // an apply thread that is late
	p.want(core.ConfPending)
	p.ApplyConfStateAt(index-1, voters(1, 2, 3))
	p.ApplyConfStateAt(index-1, voters(1, 2, 3)) // repeated
	p.want(core.ConfPending)
	p.ApplyConfStateAt(index, voters(1, 2, 3))
	p.ApplyConfStateAt(index, voters(1, 2, 3))
	p.sound()
	p.Applied(index)
	p.sound()

	index = p.commitChanges(2)
	p.ApplyConfStateAt(index, voters(1))
	p.misused(fmt.Sprintf("ApplyConfState was called for index %d", index))
	p = leading(t)
	p.ApplyConfStateAt(p.last+1, voters(1))
	p.misused("ApplyConfState")
}

// A lease is recomputed under the new voters from the grants at hand.
func TestApplyConfStateRecomputes(t *testing.T) {
	p := leading(t)
	change := func(cs *raftpb.ConfState, want core.Status) {
		t.Helper()
		index := p.commitChanges(1)
		p.ApplyConfState(cs)
		p.Applied(index)
		p.want(want)
	}
	change(voters(1, 2), core.Valid)
	change(voters(1, 2, 3, 4), core.Expired) // 2 of 4 is no quorum
	change(&raftpb.ConfState{Voters: []uint64{1, 2}, VotersOutgoing: []uint64{1, 3, 4}}, core.Expired)
	change(&raftpb.ConfState{Voters: []uint64{1, 3}, VotersOutgoing: []uint64{1, 2}}, core.Expired)
	change(&raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3, 4}}, core.Valid)
	change(voters(1), core.Valid)
	change(voters(2), core.NotVoter)
	change(voters(), core.NotVoter)
}

func TestAppliedBeyondCommitFailsLoudly(t *testing.T) {
	p := leading(t)
	ahead := p.commitNew()
	waits := p.startRead()
	p.Applied(ahead + 1)
	p.misused("beyond the commit index")
	if nl, ok := errors.AsType[*NoLeaseError](waits.err); waits.calls != 1 || !ok || nl.Status != core.Disabled {
		t.Errorf("waiting read: called %d times, error %v, want %v", waits.calls, waits.err, core.Disabled)
	}
	if got := p.Info().Applied; got >= ahead {
		t.Errorf("Info().Applied = %d, want the impossible index ignored", got)
	}
	// No path may serve from this state machine any more, also not once raft
	// has caught up or leadership has moved.
	p.commitTo(ahead + 1)
	p.Applied(ahead + 1)
	p.follow(3, 2)
	for range 2 {
		_, err := p.Read(t.Context())
		m, ok := errors.AsType[*MisuseError](err)
		if nl, isNl := errors.AsType[*NoLeaseError](err); !ok || !isNl || nl.Status != core.Disabled || !strings.Contains(err.Error(), m.Text) {
			t.Errorf("Read() = %v, want %v and the rule that was broken", err, core.Disabled)
		}
		p.lead(4)
	}
	if rctx := p.asked(); rctx != nil {
		t.Errorf("request %x, want no round for reads that cannot be served", rctx)
	}
}

// The commit index itself is the bound.
func TestAppliedUpToCommitIsFine(t *testing.T) {
	p := leading(t)
	p.Applied(p.commitNew())
	p.sound()
	p.Applied(1) // late, from an earlier batch
	if got := p.Info().Applied; got != p.last {
		t.Errorf("Info().Applied = %d, want it to stay at %d", got, p.last)
	}
}

// The first misuse is the one to mend.
func TestFirstMisuseIsKept(t *testing.T) {
	p := leading(t)
	p.Applied(p.last + 10)
	p.Applied(p.commitChanges(1))
	p.misused("beyond the commit index")
}

func TestMisuseIsLogged(t *testing.T) {
	var log strings.Builder
	p := leading(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p.Applied(p.last + 1)
	p.Applied(p.last + 2)
	if got := p.logged(&log); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "beyond the commit index") {
		t.Errorf("log = %q, want one error line with the rule", got)
	}
}

func TestClosedLeaseRefusesByName(t *testing.T) {
	p := leading(t)
	p.Close()
	p.Close()
	closed := func(what string, err error) {
		t.Helper()
		if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.Closed || !errors.Is(err, ErrNoLease) {
			t.Errorf("%s after Close = %v, want %v", what, err, core.Closed)
		}
	}
	// The lease is not revived by what goes on around it.
	hb := p.heartbeat()
	if _, err := probeOf(hb); err == nil {
		t.Error("heartbeat after Close carries a probe, want none")
	}
	p.lead(3)
	p.Tick()
	p.commitChanges(1)
	p.ApplyConfState(voters(1))
	p.invalidate()
	p.SetDiskStalled(false)

	_, err := p.Read(t.Context())
	closed("Read", err)
	closed("StartRead", p.startRead().err)
	_, err = p.Token()
	closed("Token", err)
	_, _, err = p.Context(t.Context())
	closed("Context", err)
	closed("Do", p.Do(t.Context(), nil))
	p.want(core.Closed)
	if s := p.Info(); s.Status != core.Closed || s.Remaining != 0 {
		t.Errorf("Info() after Close = %v, %v, want %v", s.Status, s.Remaining, core.Closed)
	}
	events, stop := p.Watch()
	defer stop()
	wantEvent(t, events, Event{Term: 3, Status: core.Closed})
	// The voter's half goes on: an earlier promise binds this process too.
	p.follow(4, 2)
	p.promiseTo(2)
	if p.Incoming(p.message(raftpb.MsgVote, 3, 1)) {
		t.Error("Incoming(vote) after Close = true, want the promise kept")
	}
}

// Calls in an order that no embedding should have do no harm.
func TestCallsOutOfOrder(t *testing.T) {
	p := newPuppet(t)
	p.invalidate()
	p.SetDiskStalled(true)
	p.SetDiskStalled(false)
	p.Applied(0)
	if !p.Tick() {
		t.Error("Tick() of a new node = false, want true")
	}
	p.Ready(raft.Ready{})
	p.Incoming(&raftpb.Message{})
	p.Incoming(nil)
	p.want(core.NotLeader)
	p.lead(2)
	p.renew()
	p.sound()
}

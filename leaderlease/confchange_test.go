package leaderlease

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// missing fails the test unless there is no lease for a change that was not told of.
func (p *puppet) missing() {
	p.t.Helper()
	s := p.Info()
	m, ok := errors.AsType[*MisuseError](s.Err)
	if !ok || !strings.Contains(m.Text, "without ApplyConfState") || s.Status != core.ConfPending {
		p.t.Fatalf("Info() = %v, error %v, want %v and the change that was not told of", s.Status, s.Err, core.ConfPending)
	}
	_, err := p.Token()
	if m2, ok := errors.AsType[*MisuseError](err); !ok || m2.Text != m.Text || !errors.Is(err, ErrNoLease) {
		p.t.Errorf("Token() = %v, want ErrNoLease with %q as its cause", err, m.Text)
	}
}

// A state machine that outlives restarts has the changes that raft hands out again,
// and applies none of them. Storage's ConfState was made from it.
func TestChangesThatStorageHasAreNotTold(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.ConfIndex = 4 })
	p.commitChanges(3) // at 2, 3 and 4
	p.lead(2)
	p.renew()
	p.sound()
	// What comes after them is told as ever.
	index := p.commitChanges(1)
	p.want(core.ConfPending)
	p.ApplyConfState(voters(1, 2))
	p.Applied(index)
	p.sound()
	if got, want := p.mu.conf.voters.String(), core.Voters(voters(1, 2)).String(); got != want {
		t.Errorf("voters are %v, want %v", got, want)
	}
	// Where it was not asked for, to tell of an old one is a mistake in ConfIndex.
	p = newPuppet(t, func(c *Config) { c.ConfIndex = 2 })
	p.commitChanges(1)
	p.ApplyConfState(voters(1, 2))
	p.misused("without a configuration change")
}

// A log that is behind the state machine after a crash gets the same changes again.
func TestConfIndexMayBeBeyondTheLog(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.ConfIndex = 10 })
	p.lead(2)
	p.renew()
	p.Applied(p.commitChanges(2))
	p.sound()
}

// Without ConfIndex the changes are missed, which heals with the next one that is
// told with its index, or with a snapshot.
func TestMissedChangesHeal(t *testing.T) {
	replayed := func(t *testing.T) *puppet {
		p := newPuppet(t)
		p.commitChanges(3)
		p.lead(2)
		p.renew()
		p.missing()
		return p
	}
	t.Run("by the next change", func(t *testing.T) {
		p := replayed(t)
		index := p.commitChanges(1)
		p.ApplyConfStateAt(index, voters(1, 2, 3))
		p.Applied(index)
		p.sound()
		p.renew()
		p.sound()
	})
	t.Run("not by one whose predecessor is not applied", func(t *testing.T) {
		p := replayed(t)
		index := p.commitChanges(2)
		p.ApplyConfStateAt(index, voters(1))
		p.misused("ApplyConfState")
	})
	t.Run("by a snapshot", func(t *testing.T) {
		p := replayed(t)
		p.restore(p.last+5, voters(1, 2, 3))
		p.sound()
	})
	t.Run("once each was told", func(t *testing.T) {
		p := replayed(t)
		for range 2 {
			p.ApplyConfState(voters(1, 2))
			p.missing()
		}
		p.ApplyConfState(voters(1, 2, 3))
		p.sound()
	})
}

// Reads go on by the quorum meanwhile.
func TestReadsBesideAMissedChange(t *testing.T) {
	p := leading(t)
	p.Applied(p.commitChanges(1))
	p.missing()
	o := p.startRead()
	p.answer(p.asked(), p.last)
	if o.calls != 1 || o.err != nil || o.read.Path != PathReadIndex {
		t.Errorf("read = %+v, %v, want it by a quorum round", o.read, o.err)
	}
}

// A state machine that is ahead of the log after a crash says so as soon as it is
// open: the log's entries are written beside what it applies, not before.
func TestAppliedUpToConfIndexNeedsNoLog(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.ConfIndex = 10 })
	p.Applied(10)
	p.lead(2)
	p.renew()
	p.sound()
	p.Applied(11)
	p.misused("beyond the commit index")
}

// Storage's ConfState has the change, says ConfIndex; its result is another one.
// So raft began with voters that do not count any more, and so did the lease.
func TestAChangeThatStorageLacksContradictsConfIndex(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.ConfIndex = 4 })
	p.commitChanges(1) // at 2
	p.lead(3)
	p.renew()
	p.ApplyConfStateAt(2, voters(1, 2, 3)) // what counts already
	p.sound()
	p.ApplyConfStateAt(2, voters(1, 4, 5))
	p.misused("ApplyConfState at index 2 has other voters than Storage")
	// What is said late, of a change below a snapshot, is void as ever.
	p = newPuppet(t, func(c *Config) { c.ConfIndex = 4 })
	p.commitChanges(1)
	p.restore(4, voters(1, 2, 3))
	p.lead(3)
	p.renew()
	p.ApplyConfStateAt(2, voters(1, 4, 5))
	p.sound()
}

// It is the cause of what it costs only: a follower without a leader refuses for want
// of one, and may be asked again.
func TestAMissedChangeIsNotTheCauseOfOtherRefusals(t *testing.T) {
	p := leading(t)
	p.Applied(p.commitChanges(1))
	p.missing()
	p.follow(3, 0)
	refused, ok := errors.AsType[*NoLeaseError](p.startRead().err)
	if !ok || refused.Status != core.NotLeader || refused.Err != nil {
		t.Errorf("read = %v, want %v and no other cause", refused, core.NotLeader)
	}
}

// confModel is an embedder with an apply thread that is late, and which configuration
// raft is in once that has caught up: each index leads to one of its own.
type confModel struct {
	*puppet
	r *rand.Rand
	// has is ConfIndex, until a snapshot takes the state machine elsewhere; late and
	// told are changes to apply and applied, newest the one that counts in the end.
	has        uint64
	late, told []uint64
	newest     uint64
}

// leadsTo is the configuration of index; that of 0 is the puppet's first.
func leadsTo(index uint64) *raftpb.ConfState {
	if index == 0 {
		return voters(1, 2, 3)
	}
	return voters(1, 2, 3, 100+index)
}

func (m *confModel) step() {
	switch n := m.r.IntN(10); {
	case n < 3:
		m.handOut(1 + m.r.Uint64N(3))
	case n < 6 && len(m.late) > 0:
		m.ApplyConfStateAt(m.late[0], leadsTo(m.late[0]))
		m.told = append(m.told, m.pop())
	case n == 6 && len(m.late) > 0:
		m.Applied(m.pop()) // it is forgotten
	case n == 7 && len(m.told) > 0:
		i := m.told[m.r.IntN(len(m.told))]
		m.ApplyConfStateAt(i, leadsTo(i)) // again
	case n == 8 && len(m.late) == 0:
		m.Applied(m.last)
	case n == 9 && m.r.IntN(2) == 0:
		m.last += 1 + m.r.Uint64N(3)
		m.restore(m.last, leadsTo(m.last))
		m.newest, m.has = m.last, 0
	}
}

func (m *confModel) handOut(n uint64) {
	m.commitChanges(int(n))
	for i := m.last - n + 1; i <= m.last; i++ {
		if i > m.has {
			m.late, m.newest = append(m.late, i), i
		}
	}
}

func (m *confModel) pop() (index uint64) {
	index, m.late = m.late[0], m.late[1:]
	return index
}

// Whatever comes in between, the lease is refused or counts under the configuration
// that raft ends up in, and nothing that is said in turn, late or once more is a misuse.
func TestTheLeaseCountsUnderWhatRaftEndsUpIn(t *testing.T) {
	settled := 0
	for seed := range uint64(500) {
		m := &confModel{r: rand.New(rand.NewPCG(seed, 0))}
		m.has = m.r.Uint64N(6)
		m.puppet = newPuppet(t, func(c *Config) { c.ConfIndex = m.has })
		for range 30 {
			m.step()
			if m.mu.misuse != nil {
				t.Fatalf("seed %d: %v", seed, m.mu.misuse)
			}
			got, want := m.mu.conf.voters.String(), core.Voters(leadsTo(m.newest)).String()
			if m.mu.conf.pending() {
				continue
			}
			if settled++; got != want {
				t.Fatalf("seed %d: voters %v, want %v", seed, got, want)
			}
		}
	}
	if settled < 1000 {
		t.Errorf("no change was open %d times, want 1000 and more, or this proves little", settled)
	}
}

// early fails the test unless Info names the change at index as one that raft takes for
// applied too early, or names no mistake if index is 0.
func (p *puppet) early(index string) {
	p.t.Helper()
	err := p.Info().Err
	_, ok := errors.AsType[*MisuseError](err)
	if index == "" && err != nil || index != "" && (!ok || !strings.Contains(err.Error(), "the configuration change at "+index)) {
		p.t.Fatalf("Info().Err = %v, want the change at %q named", err, index)
	}
}

// Without AsyncStorageWrites the next Ready shows that Advance was called.
func TestAnAdvanceBeforeApplyConfStateIsNamed(t *testing.T) {
	var log strings.Builder
	p := leading(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p.commitChanges(1) // at 3
	p.early("")
	p.want(core.ConfPending)
	p.Ready(raft.Ready{})
	p.Ready(raft.Ready{})
	p.early("3")
	p.want(core.ConfPending)
	if _, err := p.Token(); !strings.Contains(err.Error(), "before Advance") {
		t.Errorf("Token() = %v, want the mistake as its cause", err)
	}
	p.ApplyConfState(voters(1, 2, 3))
	p.sound()
	if n := strings.Count(p.logged(&log), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in the log, want 1", n)
	}
	// In the order that is right.
	p.Applied(p.commitChanges(1) - 1)
	p.ApplyConfState(voters(1, 2, 3))
	p.Applied(p.last)
	p.Ready(raft.Ready{})
	p.sound()
}

// With AsyncStorageWrites Readys come before changes are applied. What tells is
// MsgStorageApplyResp, where it passes through Incoming, as with Wrap.
func TestAnEarlyMsgStorageApplyRespIsNamed(t *testing.T) {
	applied := func(p *puppet, index uint64) {
		m := p.message(raftpb.MsgStorageApplyResp, raft.LocalApplyThread, 1)
		m.Entries = []*raftpb.Entry{p.entry(index)}
		p.Incoming(m)
	}
	p := leading(t, inAsyncMode)
	index := p.commitChanges(1) // at 3
	p.Ready(raft.Ready{})
	p.commitNew()
	applied(p, index-1)
	p.early("")
	p.want(core.ConfPending)
	applied(p, index)
	p.early("3")
	p.ApplyConfState(voters(1, 2, 3))
	p.sound()

	index = p.commitChanges(1)
	p.ApplyConfState(voters(1, 2, 3))
	applied(p, index)
	p.sound()
}

// A leader appends a change only if it counts the one before as applied.
func TestASecondChangeBeforeTheFirstIsAppliedIsAMisuse(t *testing.T) {
	for name, amend := range map[string]func(*Config){"sync": func(*Config) {}, "async": inAsyncMode} {
		t.Run(name, func(t *testing.T) {
			p := leading(t, amend)
			p.commitChanges(1)
			p.last++
			p.Ready(raft.Ready{Entries: []*raftpb.Entry{p.change(p.last)}})
			p.misused("the configuration change at 4 before the one at 3")
			p.ApplyConfState(voters(1, 2, 3))
			p.misused("before the one at 3 was applied")
		})
	}
}

// Those that follow append what the leader sends; a new leader finds changes in its log;
// and a change that was applied without ApplyConfState is another mistake.
func TestChangesThatALeaderMayAppend(t *testing.T) {
	append1 := func(p *puppet) {
		t.Helper()
		p.last++
		p.Ready(raft.Ready{Entries: []*raftpb.Entry{p.change(p.last)}})
		if err := p.mu.misuse; err != nil {
			t.Errorf("misuse: %v, want none", err)
		}
	}
	p := newPuppet(t, inAsyncMode)
	p.follow(2, 2)
	p.commitChanges(1)
	append1(p)
	p.win(3) // its entry is a normal one
	if err := p.mu.misuse; err != nil {
		t.Errorf("misuse of a new leader: %v, want none", err)
	}

	p = leading(t)
	p.commitChanges(1)
	p.ApplyConfState(voters(1, 2, 3))
	append1(p)

	p = leading(t)
	p.Applied(p.commitChanges(1))
	append1(p)
	p.early("3 without ApplyConfState")

	// One change after the other, in an embedding that never calls Applied.
	p = newPuppet(t)
	p.win(2)
	p.commitTo(2)
	for range 3 {
		append1(p)
		p.Ready(raft.Ready{HardState: p.hard(p.last), CommittedEntries: []*raftpb.Entry{p.change(p.last)}})
		p.ApplyConfState(voters(1, 2, 3))
	}
}

// A leader with two changes under way sends the second one when the first is applied, and
// not at all where nothing tells when that is.
func TestASecondChangeIsHeldBack(t *testing.T) {
	send := func(p *puppet, first, last uint64) bool {
		m := p.message(raftpb.MsgApp, 1, 2)
		for i := first; i <= last; i++ {
			m.Entries = append(m.Entries, p.entry(i))
		}
		return len(p.Ready(raft.Ready{Messages: []*raftpb.Message{m}})) == 1
	}
	begin := func() *puppet {
		p := leading(t, inAsyncMode)
		p.commitChanges(1) // at 3
		p.Ready(raft.Ready{Entries: []*raftpb.Entry{p.entry(4), p.change(5), p.change(6)}})
		p.last = 6
		if !send(p, 3, 4) || send(p, 3, 5) || send(p, 6, 6) {
			t.Error("want entries up to 4 sent, and none from the change at 5 on")
		}
		return p
	}
	for name, applied := range map[string]func(p *puppet){
		"told":    func(p *puppet) { p.ApplyConfState(voters(1, 2, 3)) },
		"applied": func(p *puppet) { p.Applied(3) },
	} {
		p := begin()
		applied(p)
		if !send(p, 4, 5) || send(p, 6, 6) {
			t.Errorf("%s: want the change at 5 sent, and not the one at 6", name)
		}
		p.commitTo(5)
		p.Applied(5)
		if !send(p, 6, 6) {
			t.Errorf("%s: want the change at 6 sent when the one at 5 is applied", name)
		}
	}
	p := begin()
	p.win(3)
	if !send(p, 5, 6) {
		t.Error("a new term begins: want both sent, since raft appends no third one")
	}

	p = newPuppet(t) // Applied is never called
	p.win(2)
	p.commitTo(2)
	p.commitChanges(1)
	p.Ready(raft.Ready{Entries: []*raftpb.Entry{p.change(4)}})
	if !send(p, 4, 4) {
		t.Error("want the change at 4 sent where nothing tells when the one at 3 is applied")
	}
}

// A member that has a change to apply does not ask for votes.
func TestACandidateAppliesChangesFirst(t *testing.T) {
	p := newPuppet(t)
	p.Applied(1)
	p.follow(2, 2)
	p.commitChanges(1)
	asks := func() bool {
		return len(p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgPreVote, 1, 2)}})) == 1
	}
	if asks() {
		t.Error("a pre-vote is asked for before the change is applied")
	}
	if p.ApplyConfState(voters(1, 2)); !asks() {
		t.Error("no pre-vote is asked for when the change is applied")
	}

	p = newPuppet(t) // Applied is never called
	p.follow(2, 2)
	p.commitChanges(1)
	if !asks() {
		t.Error("no pre-vote is asked for where nothing tells when the change is applied")
	}
}

package leaderlease

import (
	"errors"
	"strings"
	"testing"

	"github.com/leaderlease/go/leaderlease/core"
)

// missing fails the test unless there is no lease for a change that was not told of.
func (p *puppet) missing() {
	p.t.Helper()
	s := p.Info()
	m, ok := errors.AsType[*MisuseError](s.Err)
	if !ok || !strings.Contains(m.Rule, "without ApplyConfState") || s.Status != core.ConfPending {
		p.t.Fatalf("Info() = %v, error %v, want %v and the change that was not told of", s.Status, s.Err, core.ConfPending)
	}
	_, err := p.Token()
	if m2, ok := errors.AsType[*MisuseError](err); !ok || m2.Rule != m.Rule || !errors.Is(err, ErrNoLease) {
		p.t.Errorf("Token() = %v, want ErrNoLease with %q as its cause", err, m.Rule)
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
	p.misused("ApplyConfState 2 says other voters than Storage")
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

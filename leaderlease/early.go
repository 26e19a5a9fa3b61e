package leaderlease

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// This file is about Advance, or a MsgStorageApplyResp, that comes before
// ApplyConfChange. Raft takes a configuration change for applied then that is not. Three
// of its rules depend on that: a leader appends no second change before the first is
// applied, a member with a change to apply does not campaign, and quorums of
// configurations one change apart overlap. With two changes behind an early Advance two
// disjoint quorums commit (docs/raft-durability.md).
//
// The Lease names the mistake, and keeps the first two rules by itself, where Applied
// tells it when a change is applied at last.

// applyFirst is what to do about an early Advance.
const applyFirst = "call ApplyConfChange of raft and ApplyConfState for each configuration change of a Ready before Advance, or before MsgStorageApplyResp is stepped"

// acknowledgedLocked notes that raft takes everything up to index for applied: by
// Advance, which the next Ready shows, or by a MsgStorageApplyResp.
func (l *Lease) acknowledgedLocked(index uint64) {
	l.noteMissedLocked(func(c *confWatch) { c.acknowledged = max(c.acknowledged, index) })
}

// acknowledged notices a MsgStorageApplyResp. Only loops that pass their local messages
// through Incoming, as Wrap does, get here.
func (l *Lease) acknowledged(m *raftpb.Message) {
	n := len(m.GetEntries())
	if n == 0 || !raft.IsLocalMsgTarget(m.GetFrom()) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acknowledgedLocked(m.GetEntries()[n-1].GetIndex())
}

// appendedLocked notes the configuration changes that raft appends as leader, and says
// which rule is broken if there are two at a time.
func (l *Lease) appendedLocked(entries []*raftpb.Entry) (rule string) {
	c := &l.mu.conf
	if l.mu.role != raft.StateLeader || l.mu.term != l.mu.lease.Term() {
		c.appended = nil // another leader may replace what this one had appended
	}
	if l.mu.role != raft.StateLeader {
		return ""
	}
	for _, e := range entries {
		if !isChange(e) || e.GetTerm() != l.mu.term || e.GetIndex() <= c.known {
			continue
		}
		c.appended = append(c.appended, e.GetIndex())
		if first, second := c.two(); second != 0 && rule == "" {
			rule = fmt.Sprintf("raft has appended the configuration change at %d before the one at %d was applied: %s", second, first, applyFirst)
		}
	}
	return rule
}

// holdsAppendLocked reports whether m, a MsgApp, carries a second configuration change
// while the first is not applied. Raft sends the entries again.
func (l *Lease) holdsAppendLocked(m *raftpb.Message) bool {
	_, second := l.mu.conf.two()
	n := len(m.GetEntries())
	return second != 0 && n > 0 && m.GetEntries()[n-1].GetIndex() >= second && l.mu.applies
}

// holdsCandidacyLocked reports whether raft campaigns while a configuration change is not
// applied.
func (l *Lease) holdsCandidacyLocked() bool {
	_, waits := l.mu.conf.unapplied()
	return waits && l.mu.applies
}

// unapplied returns the oldest change that was handed out and is neither told of nor
// applied, if any.
func (c *confWatch) unapplied() (index uint64, ok bool) {
	for _, index := range c.open {
		if index > c.skipped {
			return index, true
		}
	}
	return 0, false
}

// two returns the oldest change that is not applied and the next one that raft has
// appended as leader, and 0 for the second if there is none.
func (c *confWatch) two() (first, second uint64) {
	first, ok := c.unapplied()
	for _, index := range c.appended {
		if ok && index > first {
			return first, index
		}
		if !ok {
			first, ok = index, true
		}
	}
	return first, 0
}

// finish forgets the changes that raft has appended up to index.
func (c *confWatch) finish(index uint64) {
	for len(c.appended) > 0 && c.appended[0] <= index {
		c.appended = c.appended[1:]
	}
}

// wrong says which mistake was made with a change that is open, if any.
func (c *confWatch) wrong() error {
	if err := c.missed(); err != nil {
		return err
	}
	if index, ok := c.unapplied(); ok && index <= c.acknowledged {
		return &MisuseError{Rule: fmt.Sprintf("raft takes the configuration change at %d for applied before it is: %s", index, applyFirst)}
	}
	return nil
}

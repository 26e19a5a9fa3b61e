package leaderlease

import (
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// ApplyConfState tells the lease the configuration that raft uses after the change at index. Call it after
// each configuration change in CommittedEntries, and before Advance or MsgStorageApplyResp (L5). cs is the
// result of raft's ApplyConfChange, or the unchanged ConfState if the change was rejected. Snapshots need
// no call: the lease reads their ConfState itself. A Node that Wrap, StartNode or RestartNode has returned
// calls it in ApplyConfChange.
//
// From the Ready with the configuration change until this call, leases are refused with
// StatusConfPending, so a forgotten call only costs the lease. If Advance or MsgStorageApplyResp comes
// before it, Info names the mistake, and a second change that raft appends meanwhile is a misuse.
//
// A call for an index below that of the newest reported change or restored snapshot does nothing. Any other
// call must be for the oldest change that has had no call; it may skip changes that Applied has passed.
// Otherwise it is a misuse, unless cs has the present voters.
func (l *Lease) ApplyConfState(index uint64, cs *raftpb.ConfState) {
	l.switchTo(cs, func(c *confWatch) (bool, string) { return c.close(index) })
}

// applyNextConfState is ApplyConfState for callers that do not know the index: cs is the result of the
// oldest open change. A call when none is open is a misuse, unless cs is the present configuration, or the
// newest configuration came with a snapshot.
func (l *Lease) applyNextConfState(cs *raftpb.ConfState) {
	l.switchTo(cs, func(c *confWatch) (bool, string) { return c.closeNext() })
}

func (l *Lease) switchTo(cs *raftpb.ConfState, closeChange func(*confWatch) (use bool, rule string)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	now := l.nowLocked()
	use, rule := closeChange(&l.mu.conf)
	if rule != "" && l.mu.conf.voters.String() == core.Voters(cs).String() {
		rule = "" // the present configuration, repeated
	}
	if use {
		l.setVotersLocked(cs, now)
	}
	done := l.publishLocked(now)
	l.mu.Unlock()
	done.report()
	if rule != "" {
		l.misuse(rule, false)
	}
}

// Applied tells the lease that the embedder's state machine has applied all entries up to index. Reads
// wait for it. An index that raft cannot have committed is a misuse that fails every later read. An index
// at or beyond a configuration change without ApplyConfState keeps leases off until that or a later
// such call, or until a snapshot is restored. Info reports it.
func (l *Lease) Applied(index uint64) {
	if l == nil {
		return
	}
	// A durable state machine may be ahead of the commit index on disk, which raft does not sync, and
	// even of the log, if the process crashed before the log was written. In the second case ConfIndex
	// is the limit.
	if index > max(l.commit.Load(), l.lastAtStart, l.cfg.ConfIndex) {
		l.misuse("Applied with an index beyond the commit index: state that raft has not committed must not be served", true)
		return
	}
	l.mu.Lock()
	l.mu.appliedSeen = true
	l.applied.Store(max(l.applied.Load(), index))
	l.noteMissedLocked(func(c *confWatch) { c.noteApplied(index) })
	done := l.finishAppliedLocked()
	l.mu.Unlock()
	done.report()
}

// wrongLocked returns the misuse that keeps leases off, for good or until it is corrected.
func (l *Lease) wrongLocked() error {
	if l.mu.misuse != nil {
		return l.mu.misuse
	}
	return l.mu.conf.wrong()
}

// noteMissedLocked lets f update the confWatch, and logs a mistake of the embedding that shows then.
func (l *Lease) noteMissedLocked(f func(*confWatch)) {
	before := l.mu.conf.wrong()
	f(&l.mu.conf)
	if after := l.mu.conf.wrong(); before == nil && after != nil {
		l.logLocked(slog.LevelError, "misuse, no lease until it is corrected", "error", after)
	}
}

// misuse turns leases off for good, and logs the rule once. If failReads is set, reads fail on every path.
func (l *Lease) misuse(rule string, failReads bool) {
	l.mu.Lock()
	now := l.nowLocked()
	done := l.blameLocked(rule, failReads)
	done = append(done, l.publishLocked(now)...)
	l.mu.Unlock()
	done.report()
}

// blameLocked does what misuse does, for callers that hold the lock and publish afterwards.
func (l *Lease) blameLocked(rule string, failReads bool) (done finished) {
	if l.mu.misuse == nil {
		l.mu.misuse = &MisuseError{Text: rule}
		l.logLocked(slog.LevelError, "misuse, leases are off", "rule", rule)
	}
	if failReads {
		l.mu.failReads = true
		done = l.failReadsLocked(l.noLeaseLocked(core.Disabled), true)
	}
	return done
}

func (l *Lease) setVotersLocked(cs *raftpb.ConfState, now core.Instant) {
	voters := core.Voters(cs)
	l.mu.conf.voters = voters
	l.mu.conf.alone = core.AloneQuorum(voters, l.id())
	l.mu.checks.answersExpected = l.mu.checks.answersExpected || l.mu.conf.single()
	l.mu.lease.SetVoters(voters)
	l.traceVotersLocked(voters, now)
}

// maybeAloneLocked reports whether this node may be a quorum by itself (V5). While raft's configuration is not
// known, it may.
func (l *Lease) maybeAloneLocked() bool {
	return l.mu.conf.alone || l.mu.conf.pending() || l.mu.misuse != nil
}

// soleVoterLocked reports whether this node is known to be a quorum by itself.
func (l *Lease) soleVoterLocked() bool {
	return l.mu.conf.alone && !l.mu.conf.pending() && l.mu.misuse == nil
}

// confWatch follows the configuration changes that raft has handed out.
type confWatch struct {
	voters quorum.JointConfig
	alone  bool
	// open holds the indexes of changes without a call of ApplyConfState.
	open []uint64
	// known is the newest change that is closed, or that Storage had at the start, or the newest
	// restored snapshot. stored is the ConfIndex, until a snapshot is restored.
	known, stored uint64
	// appliedPast is the newest index that was applied while a change up to it was open. acknowledged is the
	// newest index that raft counts as applied.
	appliedPast, acknowledged uint64
	// superseded: the newest configuration came with a snapshot. A late ApplyConfChange of an
	// older change is ignored.
	superseded bool
	// appended holds the changes that raft has appended as leader of this term, and that are neither
	// closed nor applied. Raft appends one at a time, unless Advance is early.
	appended []uint64
}

func (c *confWatch) noteCommitted(entries []*raftpb.Entry) {
	for _, e := range entries {
		if e.GetIndex() > c.known && isChange(e) {
			c.open = append(c.open, e.GetIndex())
			c.superseded = false
		}
	}
}

// isChange reports whether e is a configuration change. One that leaves a joint configuration may have no data.
func isChange(e *raftpb.Entry) bool {
	return e.GetType() == raftpb.EntryConfChange || e.GetType() == raftpb.EntryConfChangeV2
}

// closeNext closes the oldest open change. It reports whether its result counts, and otherwise the rule
// that was broken, if any.
func (c *confWatch) closeNext() (use bool, rule string) {
	switch {
	case c.superseded:
		return false, ""
	case len(c.open) == 0:
		return false, "ApplyConfChange without a configuration change: call it once for each that raft has handed out"
	default:
		return c.close(c.open[0])
	}
}

// close closes the change at index, and with it skipped changes before it, which its result includes.
func (c *confWatch) close(index uint64) (use bool, rule string) {
	switch {
	case index <= c.stored && c.known == c.stored:
		return false, fmt.Sprintf("ApplyConfState at index %d has other voters than Storage, which has all changes up to ConfIndex %d", index, c.stored)
	case index < c.known:
		return false, "" // late
	}
	i := slices.Index(c.open, index)
	if i < 0 || (i > 0 && c.open[i-1] > c.appliedPast) {
		return false, fmt.Sprintf("ApplyConfState was called for index %d, but the configuration changes that still need that call are, in order, at %d", index, c.open)
	}
	c.open, c.known = c.open[i+1:], index
	c.finish(index)
	return true, ""
}

// noteApplied records that the state machine has applied all entries up to index.
func (c *confWatch) noteApplied(index uint64) {
	c.finish(index)
	if c.pending() && c.open[0] <= index {
		c.appliedPast = max(c.appliedPast, index)
	}
}

// missed returns the misuse of an applied change without ApplyConfState, if any.
func (c *confWatch) missed() error {
	if !c.pending() || c.open[0] > c.appliedPast {
		return nil
	}
	return &MisuseError{Text: fmt.Sprintf("Applied was called for index %d, beyond the configuration change at %d without ApplyConfState: no lease until that or a later such call, or until a snapshot is restored", c.appliedPast, c.open[0])}
}

func (c *confWatch) noteRestored(index uint64) {
	c.open, c.appended, c.known, c.stored, c.superseded = nil, nil, index, 0, true
}

func (c *confWatch) pending() bool { return len(c.open) > 0 }

// single reports whether there is only one voter.
func (c *confWatch) single() bool { return len(c.voters[0]) == 1 && len(c.voters[1]) == 0 }

// The rest of this file is about an Advance, or a MsgStorageApplyResp, before ApplyConfChange. Raft then
// counts an unapplied configuration change as applied. Three of its rules depend on the right count: a leader appends
// no second change before the first is applied, a member with a change to apply does not campaign, and
// quorums of configurations one change apart overlap. If two changes are unapplied after an early Advance, two
// disjoint quorums can commit entries (docs/raft-durability.md).
//
// The Lease names the mistake. If the embedding calls Applied, the Lease also keeps the first two rules.

// applyFirst is the advice about an early Advance.
const applyFirst = "call ApplyConfChange of raft and ApplyConfState for each configuration change of a Ready before Advance, or before MsgStorageApplyResp is stepped"

// acknowledgedLocked records that raft counts all entries up to index as applied: by Advance, which the
// next Ready shows, or by a MsgStorageApplyResp.
func (l *Lease) acknowledgedLocked(index uint64) {
	l.noteMissedLocked(func(c *confWatch) { c.acknowledged = max(c.acknowledged, index) })
}

// noteAcknowledged handles a MsgStorageApplyResp. It runs only in loops that pass their local messages
// through Incoming, as Wrap does.
func (l *Lease) noteAcknowledged(m *raftpb.Message) {
	n := len(m.GetEntries())
	if n == 0 || !raft.IsLocalMsgTarget(m.GetFrom()) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acknowledgedLocked(m.GetEntries()[n-1].GetIndex())
}

// noteAppendedLocked records the configuration changes that raft appends as leader. It returns the broken rule
// if there are two at a time.
func (l *Lease) noteAppendedLocked(entries []*raftpb.Entry) (rule string) {
	c := &l.mu.conf
	if l.mu.role != raft.StateLeader || l.mu.term != l.mu.lease.Term() {
		c.appended = nil // another leader may replace these entries
	}
	if l.mu.role != raft.StateLeader {
		return ""
	}
	for _, e := range entries {
		if !isChange(e) || e.GetTerm() != l.mu.term || e.GetIndex() <= c.known {
			continue
		}
		c.appended = append(c.appended, e.GetIndex())
		if first, second := c.overlapping(); second != 0 && rule == "" {
			rule = fmt.Sprintf("raft has appended the configuration change at %d before the one at %d was applied: %s", second, first, applyFirst)
		}
	}
	return rule
}

// mustHoldAppendLocked reports whether m, a MsgApp, must be withheld because it carries a second configuration
// change while the first is not applied. Raft sends the entries again.
func (l *Lease) mustHoldAppendLocked(m *raftpb.Message) bool {
	_, second := l.mu.conf.overlapping()
	n := len(m.GetEntries())
	return second != 0 && n > 0 && m.GetEntries()[n-1].GetIndex() >= second && l.mu.appliedSeen
}

// mustHoldCandidacyLocked reports whether vote requests must wait until a configuration change is applied.
func (l *Lease) mustHoldCandidacyLocked() bool {
	_, waits := l.mu.conf.unapplied()
	return waits && l.mu.appliedSeen
}

// unapplied returns the oldest open change that is not applied, if any.
func (c *confWatch) unapplied() (index uint64, ok bool) {
	for _, index := range c.open {
		if index > c.appliedPast {
			return index, true
		}
	}
	return 0, false
}

// overlapping returns the oldest change that is not applied, and the next one that raft has appended as leader, or
// 0 if there is none.
func (c *confWatch) overlapping() (first, second uint64) {
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

// finish drops the appended changes up to index.
func (c *confWatch) finish(index uint64) {
	for len(c.appended) > 0 && c.appended[0] <= index {
		c.appended = c.appended[1:]
	}
}

// wrong returns the misuse of an open change, if any.
func (c *confWatch) wrong() error {
	if err := c.missed(); err != nil {
		return err
	}
	if index, ok := c.unapplied(); ok && index <= c.acknowledged {
		return &MisuseError{Text: fmt.Sprintf("raft has counted the configuration change at %d as applied, but it is not: %s", index, applyFirst)}
	}
	return nil
}

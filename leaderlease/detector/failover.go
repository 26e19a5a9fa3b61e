package detector

import "time"

// Cause is the event that started a fail-over.
type Cause uint8

const (
	// Silence is an election timeout without a sign of life.
	Silence Cause = iota
	// ConnClosed is a connection that the other end has closed.
	ConnClosed
	// PreVote is another member's request for a pre-vote.
	PreVote
	// Transfer is a leadership transfer.
	Transfer
	// Resignation is the message of a leader that shuts down, as its receiver reports it. To the
	// other members it looks like a transfer.
	Resignation
	// LongSilence is a silence that is much longer than the leader's recent ones.
	LongSilence
	// ProcessDied is the proof that the leader's process has died.
	ProcessDied

	// NumCauses is the number of causes.
	NumCauses = int(ProcessDied) + 1

	// restart is a start of this member after which it has heard no leader. There is no leader that
	// could be replaced, so restart starts no fail-over and is not among the causes.
	restart = Cause(NumCauses)
	// notSuspected is the cause in Detector.suspicion while the leader is not suspected.
	notSuspected = Silence
)

var causeNames = [NumCauses]string{"silence", "hint", "pre-vote", "transfer", "resignation", "learnt-silence", "obituary"}

// String returns the name used in logs and metrics.
func (c Cause) String() string {
	if int(c) < NumCauses {
		return causeNames[c]
	}
	return "unknown"
}

// FailOver describes how one leader replaced another, as seen by one follower.
type FailOver struct {
	Cause Cause
	// Detection is the time from the last sign of life to the suspicion; for Silence it is at most an
	// election timeout. Promise is the time from there until this member's promise had ended and three
	// heartbeats were missing, 0 if another member was first. Election is the time from there, or from
	// the request of a transfer, until the next leader was known. Commit is the time from there to the
	// next commit.
	Detection, Promise, Election, Commit time.Duration
}

// Stats counts events since New.
type Stats struct {
	// Suspicions counts suspicions by their cause.
	Suspicions [NumCauses]uint64
	// FalseSuspicions counts suspicions that a sign of life has ended. One for LongSilence is also
	// false if the leader was replaced, and is heard within an election timeout of its last sign of
	// life.
	FalseSuspicions uint64
	// Forgets counts how often raft had to forget its leader.
	Forgets uint64
	// Limit is the silence after which the leader would be suspected, as of the last Tick. It is
	// the election timeout until enough is recorded, and 0 without Config.Observe and on the leader.
	Limit time.Duration
	// FailOvers counts fail-overs by their cause.
	FailOvers [NumCauses]uint64
	// Last is the last fail-over, if any.
	Last FailOver
}

// Stats returns the counters.
func (d *Detector) Stats() Stats { return d.stats }

// recordFailOver records how the leader was replaced.
func (d *Detector) recordFailOver(now time.Time) {
	s, last := &d.suspicion, FailOver{}
	switch {
	case !d.transferAt.IsZero() && s.cause != ProcessDied:
		last = FailOver{Cause: d.transferCause, Election: now.Sub(d.transferAt)}
	case s.cause == Silence:
		all := now.Sub(d.heard) // another member may have lost the leader earlier, and campaigned first
		last.Detection = min(all, d.cfg.ElectionTimeout)
		last.Election = all - last.Detection
	case s.freeAt.IsZero(): // another member was first
		last = FailOver{Cause: s.cause, Detection: s.at.Sub(d.heard), Election: now.Sub(s.at)}
	default:
		last = FailOver{Cause: s.cause, Detection: s.at.Sub(d.heard), Promise: s.freeAt.Sub(s.at), Election: now.Sub(s.freeAt)}
	}
	d.stats.Last, d.replacedAt = last, now
	d.stats.FailOvers[last.Cause]++
}

// Committed reports that an entry was committed since LeaderIs.
func (d *Detector) Committed(now time.Time) {
	if !d.replacedAt.IsZero() {
		d.stats.Last.Commit, d.replacedAt = now.Sub(d.replacedAt), time.Time{}
	}
}

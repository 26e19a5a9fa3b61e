package detector

import "time"

// Way is what a fail-over began with.
type Way uint8

const (
	// Silence is an election timeout without a sign of life.
	Silence Way = iota
	// Hint is a connection that the other end has ended.
	Hint
	// PreVote is another member's request for a pre-vote.
	PreVote
	// Transfer is the leader's own wish.
	Transfer
	// Resignation is the wish of a leader that ends by itself, to who was asked. The others
	// cannot tell it from a transfer.
	Resignation
	// LearntSilence is one that is much longer than any that the leader has shown of late.
	LearntSilence
	// Obituary is the proof that the leader's process has died.
	Obituary

	// NumWays is the number of ways.
	NumWays = int(Obituary) + 1

	// restart is a start of this member after which it has heard no leader. It knows of none that
	// could be replaced, so no fail-over begins with it, and it is not among the ways.
	restart = Way(NumWays)
)

var wayNames = [NumWays]string{"silence", "hint", "pre-vote", "transfer", "resignation", "learnt-silence", "obituary"}

// String returns the name used in logs and metrics.
func (w Way) String() string {
	if int(w) < NumWays {
		return wayNames[w]
	}
	return "unknown"
}

// FailOver is how one leader was replaced by another, as one follower has seen it.
type FailOver struct {
	Way Way
	// Hint is how long after the last sign of life the suspicion began, which after mere
	// silence is an election timeout; Promise how long this member was bound then, if it was
	// the one to wait for; Election how long it took from there until the next leader was
	// known, or since the wish was, and Commit until something was committed then.
	Hint, Promise, Election, Commit time.Duration
}

// Stats counts what has happened since New.
type Stats struct {
	// Hints counts suspicions by what they began with, FalseAlarms those that a sign of
	// life has ended, for learnt silence within an election timeout and be the leader replaced
	// by then, Forgets how often raft was to forget its leader.
	Hints                [NumWays]uint64
	FalseAlarms, Forgets uint64
	// Limit is after what silence the leader would be suspected, as of the last Tick: the
	// election timeout if nothing is learnt yet, 0 without Config.Learn and where this member leads.
	Limit time.Duration
	// FailOvers counts them by what they began with.
	FailOvers [NumWays]uint64
	// Last is the last fail-over, if any.
	Last FailOver
}

// Stats returns the counters.
func (d *Detector) Stats() Stats { return d.stats }

// note keeps how the leader was replaced.
func (d *Detector) note(now time.Time) {
	h, last := &d.hint, FailOver{}
	switch {
	case !d.asked.IsZero() && h.way != Obituary: // who was asked for its vote by another that knows
		last = FailOver{Way: d.wish, Election: now.Sub(d.asked)}
	case h.way == Silence:
		all := now.Sub(d.heard) // another member may have been first, which had heard less
		last.Hint = min(all, d.cfg.ElectionTimeout)
		last.Election = all - last.Hint
	case h.free.IsZero(): // another member was first
		last = FailOver{Way: h.way, Hint: h.at.Sub(d.heard), Election: now.Sub(h.at)}
	default:
		last = FailOver{Way: h.way, Hint: h.at.Sub(d.heard), Promise: h.free.Sub(h.at), Election: now.Sub(h.free)}
	}
	d.stats.Last, d.replaced = last, now
	d.stats.FailOvers[last.Way]++
}

// Committed tells that something was committed since LeaderIs.
func (d *Detector) Committed(now time.Time) {
	if !d.replaced.IsZero() {
		d.stats.Last.Commit, d.replaced = now.Sub(d.replaced), time.Time{}
	}
}

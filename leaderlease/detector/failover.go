package detector

import "time"

// Way is what a fail-over began with.
type Way uint8

const (
	// Silence is an election timeout without a sign of life, or a transfer.
	Silence Way = iota
	// Hint is a connection that the other end has ended.
	Hint
	// PreVote is another member's request for a pre-vote.
	PreVote

	// NumWays is the number of ways.
	NumWays = int(PreVote) + 1
)

var wayNames = [NumWays]string{"silence", "hint", "pre-vote"}

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
	// Hint is how long after the last sign of life the suspicion began, Promise how long
	// this member was bound then, Election how long it took from there. After mere silence
	// all of it is Election.
	Hint, Promise, Election time.Duration
}

// Stats counts what has happened since New.
type Stats struct {
	// Hints counts suspicions by what they began with, FalseAlarms those that a sign of
	// life has ended, Forgets how often raft was to forget its leader.
	Hints                [NumWays]uint64
	FalseAlarms, Forgets uint64
	// Last is the last fail-over, if any.
	Last FailOver
}

// Stats returns the counters.
func (d *Detector) Stats() Stats { return d.stats }

// note keeps how the leader was replaced.
func (d *Detector) note(now time.Time) {
	h := &d.hint
	if h.way == Silence || h.free.IsZero() {
		// Another member was first: what this one suspected was not what decided.
		d.stats.Last = FailOver{Way: h.way, Election: now.Sub(d.heard)}
		return
	}
	d.stats.Last = FailOver{Way: h.way, Hint: h.at.Sub(d.heard), Promise: h.free.Sub(h.at), Election: now.Sub(h.free)}
}

package core

import (
	"time"
)

// flaw is one way not to do what doc.go asks of the caller.
type flaw int

const (
	sound flaw = iota
	marginRemoved
	marginTooThin
	holdRemoved
	holdTooShort
	guardNotAsked
	releaseUntold
	votersUntold
	incomingHalfOnly
	measuredFromArrival
	termUntold
	stepDownUntold
	clockUntold
	suspendUntold
	jumpUntold
	echoed
	numFlaws = iota
)

var flawNames = [numFlaws]string{
	sound:               "sound",
	marginRemoved:       "the margin removed",
	marginTooThin:       "nine tenths of the margin",
	holdRemoved:         "the restart hold removed",
	holdTooShort:        "half a restart hold",
	guardNotAsked:       "the guard not asked",
	releaseUntold:       "the lease kept in a transfer",
	votersUntold:        "voters not updated",
	incomingHalfOnly:    "only the incoming half of a joint configuration",
	measuredFromArrival: "measured from the arrival of the answer",
	termUntold:          "the guard not told the term",
	stepDownUntold:      "the lease not told to step down",
	clockUntold:         "a clock that went back not reported",
	suspendUntold:       "a clock that missed time not reported",
	jumpUntold:          "a clock that jumped ahead not reported",
	echoed:              "an echo taken for a grant",
}

func (f flaw) margin(d time.Duration) time.Duration {
	switch f {
	case marginRemoved:
		return 0
	case marginTooThin:
		return d * 9 / 10
	default:
		return d
	}
}

func (f flaw) hold(d time.Duration) time.Duration {
	switch f {
	case holdRemoved:
		return 0
	case holdTooShort:
		return d / 2
	default:
		return d
	}
}

// sight is something that must have been seen, or the runs prove little.
type sight int

const (
	election sight = iota
	renewal
	leaseHeld    // a view passed its check
	readInMargin // a view would have passed but for the margin
	voteWithheld
	transferWon
	reconfigured
	heldBack // a node was bound by its restart alone
	overtaken
	numSights = iota
)

var sightNames = [numSights]string{
	"election", "renewal", "lease held", "read in the margin", "vote withheld",
	"transfer won", "reconfigured", "held back", "overtaken",
}

package transport

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/leaderlease/go/internal/durations"
)

// counts are what is counted of one peer. Counters of whoever is no peer are
// kept together, so that strangers cannot grow memory.
type counts struct {
	out [numStreams]outCounts
	in  [numStreams]inCounts
	// invalid counts messages that Validate refused, or that did not decode;
	// refusals count by reason what the peer said.
	invalid    atomic.Uint64
	refusals   [len(reasons)]atomic.Uint64 // by index in reasons
	obituaries atomic.Uint64
	// roundTrips are how long the peer took to answer pings; nil for strangers.
	roundTrips *durations.Histogram
}

// outCounts count what is sent on one stream.
type outCounts struct {
	sent, sentBytes, lost atomic.Uint64
	connects              atomic.Uint64
}

// inCounts count what arrives on one stream.
type inCounts struct {
	received, receivedBytes atomic.Uint64
}

func (c *counts) refused(reason string) { c.refusals[reasonIndex(reason)].Add(1) }

// totals are what is counted of no peer in particular.
type totals struct {
	strangers counts
	// unaddressed counts messages to nobody that SetPeer has named.
	unaddressed atomic.Uint64
	// garbled counts connections that never said a readable hello. What the hall
	// turned away it counts itself.
	garbled atomic.Uint64
	// refusals count by reason what this member said; complain limits what is
	// logged about it.
	refusals [len(reasons)]atomic.Uint64
	complain rate.Sometimes
	came     rate.Sometimes // the same for connections of peers
}

// seldom limits what is logged of something that may repeat for ever.
func seldom() rate.Sometimes { return rate.Sometimes{First: 10, Interval: 10 * time.Second} }

func reasonIndex(reason string) int {
	if i := slices.Index(reasons[:], reason); i >= 0 {
		return i
	}
	return len(reasons) - 1
}

// countsOf returns the counters of a member.
func (t *Transport) countsOf(id uint64) *counts {
	if p := t.peer(id); p != nil {
		return &p.counts
	}
	return &t.totals.strangers
}

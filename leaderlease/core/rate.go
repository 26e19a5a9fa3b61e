package core

import "time"

// rateWatch bounds how fast one voter's clock runs relative to the leader's,
// from pairs of readings, and says so when assumption A1 is seen to be false.
//
// A voter reads its clock after the probe named in the grant was sent and
// before the grant arrives. So between two samples the leader's clock advanced
// by at least sent₂ − received₁ and at most received₂ − sent₁ while the voter's
// advanced by exactly reading₂ − reading₁. The error is the two round trips,
// which a longer window makes small. Only what these bounds prove is acted on,
// so slow networks and paused processes raise no false alarm.
type rateWatch struct {
	anchor  sample
	suspect bool
	// clear is how long a clock must look good before it is trusted again: as
	// long as it took to find it bad, within limits, or a clock near the bound
	// flaps.
	clear time.Duration
}

// sample is one grant as the leader saw it.
type sample struct {
	sent, received Instant // leader's clock
	reading        Instant // voter's clock
	incarnation    Incarnation
}

const (
	// A watch that has seen nothing wrong for this many promise durations
	// trusts the clock again, at the earliest, and after rateMaxClear of them at
	// the latest: a clock that stood still for hours is found after hours.
	rateClearWindow = 4
	rateMaxClear    = 16
	// A window this long is ended and a new one begun, so that a clock that
	// changes its rate is judged by what it does now.
	rateMaxWindow = 64
)

func (w *rateWatch) observe(s sample, p Params) {
	if s.reading <= 0 {
		return
	}
	if w.anchor.reading == 0 || s.incarnation != w.anchor.incarnation {
		w.anchor, w.suspect = s, false
		return
	}
	if s.sent <= w.anchor.sent {
		return // late or repeated: it tells nothing new
	}
	window := s.received.Sub(w.anchor.received)
	switch {
	case outside(w.anchor, s, p):
		w.anchor, w.suspect = s, true
		w.clear = min(max(window, rateClearWindow*p.Duration), rateMaxClear*p.Duration)
	case w.suspect && window < w.clear:
		// Not yet.
	case window >= rateMaxWindow*p.Duration:
		w.anchor, w.suspect = s, false
	default:
		w.suspect = false
	}
}

// outside reports whether the two clocks provably diverge by more than
// MaxClockSkew over one Duration. While a voter's clock advances by Duration,
// the leader's must advance by more than Duration − MaxClockSkew (or the
// promise ends before the lease), and the other way round when roles change.
func outside(a, b sample, p Params) bool {
	voter := float64(b.reading - a.reading)
	least := float64(max(b.sent-a.received, 0))
	most := float64(b.received - a.sent)
	bound := float64(p.Duration-p.MaxClockSkew) / float64(p.Duration)
	// The slack absorbs the rounding of readings to whole nanoseconds.
	const slack = float64(time.Microsecond)
	return voter*bound > most+slack || voter < least*bound-slack
}

// noteClocks remembers whether the voters whose clocks can be trusted are too
// few for a quorum, which is the reason to report then.
func (l *Lease) noteClocks() {
	l.outvoted = false
	for i := range l.peers {
		if l.peers[i].rate.suspect {
			l.outvoted = quorumEnd(l.voters, soundClocks{l}) != Forever
			return
		}
	}
}

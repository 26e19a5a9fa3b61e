package core

import (
	"time"
)

// peer is what the leader knows about one other voter.
type peer struct {
	id uint64
	// promised is the newest sent + duration the voter granted in this reign,
	// on the leader's clock; 0 if none. Invariant: it never decreases within a
	// reign, except to 0 by forget.
	promised Instant
	// last describes the newest grant, for Status only; it outlives the reign.
	last struct {
		at       Instant
		duration time.Duration
	}
	rate rateWatch
}

// forget drops the promise, not what was learnt about the voter's clock.
func (p *peer) forget() { p.promised = 0 }

// count takes a grant whose term and send instant are right and reports whether
// anything changed that the lease depends on.
func (p *peer) count(g Grant, now Instant, params Params) (changed bool) {
	p.last.at, p.last.duration = now, g.Duration
	wasSuspect := p.rate.suspect
	p.rate.observe(sample{sent: g.Sent, received: now, reading: g.Reading, incarnation: g.Incarnation}, params)

	// The leader never asked for more than Duration, so it believes no more.
	until := g.Sent.Add(min(g.Duration, params.Duration))
	changed = until > p.promised || wasSuspect != p.rate.suspect
	p.promised = max(p.promised, until)
	return changed
}

// until returns the instant that the voter's promise can be relied on to reach.
func (p *peer) until() Instant {
	if p.rate.suspect {
		return 0
	}
	return p.promised
}

// PeerInfo is what Lease.Info shows of one other voter.
type PeerInfo struct {
	ID uint64
	// Promised is how long the voter's promise still lasts by the leader's
	// clock; 0 when there is none.
	Promised time.Duration
	// GrantAge is the time since its newest grant, -1 if there was none.
	GrantAge time.Duration
	// Duration is what its newest grant promised.
	Duration time.Duration
	// ClockSuspect means that the voter's clock was seen to run outside the
	// configured bound relative to the leader's: its grants do not count.
	ClockSuspect bool
}

// Peers describes the other voters as of now, by ID.
func (l *Lease) Peers(now Instant) []PeerInfo {
	infos := make([]PeerInfo, 0, len(l.peers))
	for i := range l.peers {
		p := &l.peers[i]
		info := PeerInfo{ID: p.id, GrantAge: -1, Duration: p.last.duration, ClockSuspect: p.rate.suspect}
		if p.last.at != 0 {
			info.GrantAge = max(now.Sub(p.last.at), 0)
		}
		if p.promised != 0 {
			info.Promised = max(p.promised.Sub(now), 0)
		}
		infos = append(infos, info)
	}
	return infos
}

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

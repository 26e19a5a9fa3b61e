package core

import "time"

// peer is the leader's knowledge about one other voter.
type peer struct {
	id uint64
	// promised is the newest sent + duration that the voter granted in this term, on the leader's
	// clock; 0 if none. Invariant: it never decreases within a term, except to 0 by forget.
	promised Instant
	// last describes the newest grant, for Info only. It survives the term.
	last struct {
		at       Instant
		duration time.Duration
	}
	rate rateWatch
}

// forget drops the promise, and keeps the observations of the voter's clock.
func (p *peer) forget() { p.promised = 0 }

// count takes a grant with the right term and send instant. It reports whether anything changed
// that the lease depends on.
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

// until returns the end of the voter's promise, as far as its clock can be trusted.
func (p *peer) until() Instant {
	if p.rate.suspect {
		return 0
	}
	return p.promised
}

// PeerInfo describes another voter as its leader sees it.
type PeerInfo struct {
	ID uint64
	// Promised is how long the voter's promise still lasts by the leader's clock; 0 when there is
	// none.
	Promised time.Duration
	// GrantAge is the time since its newest grant, -1 if there was none.
	GrantAge time.Duration
	// Duration is the length of the promise in its newest grant.
	Duration time.Duration
	// ClockSuspect means that the voter's clock was seen to run outside the configured bound relative
	// to the leader's. Its grants do not count.
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

// rateWatch bounds how fast one voter's clock runs relative to the leader's, from pairs of readings.
// It detects that assumption A1 is false.
//
// A voter reads its clock after the probe named in the grant was sent and before the grant arrives.
// So between two samples the leader's clock advanced by at least sent₂ − received₁ and at most
// received₂ − sent₁, while the voter's advanced by exactly reading₂ − reading₁. The error is the two
// round trips, a small part of a long window. The watch acts only on what these bounds prove, so
// slow networks and paused processes make no clock suspect.
type rateWatch struct {
	anchor  sample
	suspect bool
	// clear is how long a clock must look good before it is trusted again. It is the time that it
	// took to find the clock bad, within limits. A clock near the bound would flap otherwise.
	clear time.Duration
}

// sample is one grant as the leader saw it.
type sample struct {
	sent, received Instant // leader's clock
	reading        Instant // voter's clock
	incarnation    Incarnation
}

const (
	// rateClearWindow and rateMaxClear bound rateWatch.clear, in promise durations. Without the
	// maximum, a clock that stood still for hours would be suspect for hours after that.
	rateClearWindow = 4
	rateMaxClear    = 16
	// rateMaxWindow is the length, in promise durations, after which a new window begins, so that a
	// clock is judged by its present rate.
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

// outside reports whether the two clocks provably diverge by more than MaxClockSkew over one
// Duration. While a voter's clock advances by Duration, the leader's must advance by more than
// Duration − MaxClockSkew, or the promise may end before the leader stops its reads. The same holds
// the other way round, for when the roles change.
func outside(a, b sample, p Params) bool {
	voter := float64(b.reading - a.reading)
	least := float64(max(b.sent-a.received, 0))
	most := float64(b.received - a.sent)
	bound := float64(p.Duration-p.MaxClockSkew) / float64(p.Duration)
	// The slack absorbs the rounding of readings to whole nanoseconds.
	const slack = float64(time.Microsecond)
	return voter*bound > most+slack || voter < least*bound-slack
}

// noteClocks sets tooFewClocks if the voters with trusted clocks are too few for a quorum.
func (l *Lease) noteClocks() {
	l.tooFewClocks = false
	for i := range l.peers {
		if l.peers[i].rate.suspect {
			l.tooFewClocks = quorumEnd(l.voters, soundClocks{l}) != Forever
			return
		}
	}
}

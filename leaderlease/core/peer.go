package core

import "time"

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

package ttl

import "sync/atomic"

// Stats counts since the start. Only a member that leads counts.
type Stats struct {
	// Leading says whether this member counts time now.
	Leading bool
	// Active is the number of TTL leases whose time it counts, Revoking of those
	// the number whose time is over.
	Active, Revoking int
	// Renewals are keep-alives that were answered, Expirations revocations for want
	// of them, and Checkpoints the times that what is left of a TTL lease was
	// written to the log.
	Renewals, Expirations, Checkpoints uint64
}

type counters struct{ renewals, expirations, checkpoints atomic.Uint64 }

// Stats returns the figures as of now.
func (e *Engine) Stats() Stats {
	s := Stats{
		Renewals: e.stats.renewals.Load(), Expirations: e.stats.expirations.Load(), Checkpoints: e.stats.checkpoints.Load(),
	}
	if r := e.reign.Load(); r != nil {
		r.mu.Lock()
		s.Leading, s.Active, s.Revoking = true, len(r.mu.leases), len(r.slots)
		r.mu.Unlock()
	}
	return s
}

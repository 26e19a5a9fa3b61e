package leasetest

import "context"

// context returns the context of a read. It never ends, or ends with the directive cancel
// (cancel=later), or before the read has begun to wait (cancel=early).
func (s *script) context(a *args, n *Node) context.Context {
	a.t.Helper()
	when := a.values("cancel")
	if len(when) == 0 || n.lease == nil {
		return context.Background()
	}
	c := s.newContext(n.lease, when[0] == "early")
	s.contexts = append(s.contexts, c)
	return c
}

// cancel ends every context.
func (s *script) cancel(a *args) {
	a.t.Helper()
	for _, c := range s.contexts {
		c.end(a.t)
	}
	s.contexts = nil
}

// work begins a Lease.Context, under a parent that the directive cancel ends.
func (s *script) work(a *args) {
	n := a.node(s, 0)
	parent := s.newContext(n.lease, false)
	_, stop, err := n.lease.Context(parent)
	if err != nil {
		s.event("node %d: work: %v", n.ID, err)
		return
	}
	s.contexts, s.works = append(s.contexts, parent), append(s.works, stop)
}

// stopWork stops the work contexts, which use timers of the operating system.
func (s *script) stopWork() {
	for _, stop := range s.works {
		stop()
	}
}

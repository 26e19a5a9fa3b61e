package leasetest

import "context"

// context returns what ends a read: nothing, cancel (cancel=later), or a moment at
// which it has not begun to wait (cancel=early).
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

// work starts what must end with the lease, under a context that cancel ends.
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

// stopWork ends the timers of what works, which are the operating system's.
func (s *script) stopWork() {
	for _, stop := range s.works {
		stop()
	}
}

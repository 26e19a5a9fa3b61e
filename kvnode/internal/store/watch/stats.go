package watch

// Stats says who watches, and what they have been told.
type Stats struct {
	// Streams and Watchers are those there are; Behind of the latter read the history,
	// for they have not got all that is newer than where they begin.
	Streams, Watchers, Behind int
	// Pending are the events that are kept for streams that do not keep up, Sent all
	// that streams were given since the start.
	Pending int
	Sent    uint64
}

// Stats returns the figures of this moment. It looks at each stream, so that nothing
// is counted in common while events are passed on.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Stats{Streams: len(h.mu.streams), Watchers: int(h.open.Load()), Sent: h.mu.sent}
	st.Behind = max(st.Watchers-h.mu.synced.size, 0)
	for s := range h.mu.streams {
		st.Sent += s.sent.Load()
		s.queue.mu.Lock()
		st.Pending += s.queue.mu.events
		s.queue.mu.Unlock()
	}
	return st
}

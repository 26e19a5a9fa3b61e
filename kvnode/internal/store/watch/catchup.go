package watch

import "github.com/leaderlease/go/kvnode/internal/store"

// catchUp reads a part of the history for all watchers that are behind, and
// leaves what they are told in s.ready.
func (s *Stream) catchUp() {
	if s.behind.size == 0 {
		return
	}
	from := s.endCompacted()
	if from == 0 {
		return // Their items in the queue come first.
	}
	h := s.hub
	var touched []*watcher
	events, largest := 0, 0
	next, err := h.history.History(from, s.limits.ScanWrites, func(w store.Write) bool {
		one := event{write: w}
		s.behind.match(w.KV.GetKey(), func(to *watcher) {
			if to.queued == 0 {
				touched = one.addTo(to, touched)
				events++
				largest = max(largest, to.size)
			}
		})
		return events < s.limits.BatchEvents && largest < s.limits.BatchBytes
	})
	if err != nil {
		// Compacted meanwhile. What was found may have holes.
		for _, w := range touched {
			w.takeBatch()
		}
		return
	}
	for _, w := range touched {
		w.notified = true
		found, _ := w.takeBatch()
		s.ready = append(s.ready, Response{ID: w.ID, Revision: next - 1, Events: found, Fragment: w.Fragment})
	}
	s.promote(next)
}

// endCompacted ends the watchers of which a part is compacted. It returns the
// first revision that one of the others needs, 0 if none of them may go on yet.
func (s *Stream) endCompacted() (from int64) {
	compacted, revision := s.hub.history.CompactRevision(), s.hub.history.Revision()
	var ended []*watcher
	s.behind.each(func(w *watcher) {
		switch {
		case w.queued > 0:
		case w.next < compacted:
			ended = append(ended, w)
		case from == 0 || w.next < from:
			from = w.next
		}
	})
	for _, w := range ended {
		// It is the stream's until its client is told.
		s.behind.remove(w)
		s.ready = append(s.ready, Response{ID: w.ID, Revision: revision, Compacted: compacted})
	}
	return from
}

// promote notes that the watchers that are behind have got what is below next,
// and lets the hub serve those that have reached it.
func (s *Stream) promote(next int64) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.behind.each(func(w *watcher) {
		if w.queued > 0 {
			return
		}
		w.next = max(w.next, next)
		if w.next >= h.mu.next {
			s.behind.remove(w)
			w.synced = true
			h.mu.synced.add(w)
		}
	})
}

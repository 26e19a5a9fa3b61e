package watch

import "github.com/leaderlease/go/kvnode/internal/store"

// catchUp reads a part of the history for all watchers that are behind, as etcd's syncWatchers
// does, and appends their responses to s.ready.
//
// One scan starts at the lowest revision that any of them needs. It ends with a complete revision,
// so afterwards each of them has got everything below the same next revision.
func (s *Stream) catchUp() {
	if s.behind.size == 0 {
		return
	}
	first := s.endCompacted()
	if first == 0 {
		return // their queued items come first
	}
	h := s.hub
	var touched []*watcher
	events, largest := 0, 0
	next, err := h.history.History(first, s.limits.scanWrites, func(w store.Write) bool {
		one := event{write: w}
		s.behind.match(w.KV.GetKey(), func(to *watcher) {
			if to.queued == 0 {
				touched = one.addTo(to, touched)
				events++
				largest = max(largest, to.size)
			}
		})
		return events < s.limits.batchEvents && largest < s.limits.batchBytes
	})
	if err != nil {
		// The history was compacted during the scan, so the events may have gaps. They are
		// dropped, and the next call ends the affected watchers.
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

// endCompacted ends the watchers that need a compacted revision. It returns the lowest revision
// that the remaining ones need, 0 if none may continue yet. A watcher with queued items waits until
// they were sent: they are older than the history it needs.
func (s *Stream) endCompacted() (first int64) {
	compacted, revision := s.hub.history.CompactRevision(), s.hub.history.Revision()
	var ended []*watcher
	s.behind.each(func(w *watcher) {
		switch {
		case w.queued > 0:
		case w.next < compacted:
			ended = append(ended, w)
		case first == 0 || w.next < first:
			first = w.next
		}
	})
	for _, w := range ended {
		// The watcher stays registered until Next returns the response.
		s.behind.remove(w)
		s.ready = append(s.ready, Response{ID: w.ID, Revision: revision, Compacted: compacted})
	}
	return first
}

// promote notes that the watchers that are behind have got everything below next. Watchers that have
// reached the hub's next revision become synced. The comparison is made under the hub's lock, so the
// hub handles no revision in between.
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

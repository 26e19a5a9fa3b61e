package watch

// RequestProgress asks for a response with the ID All. Next returns it as soon
// as all watchers have got everything up to the newest revision of now. There is
// none if there is no watcher, or if one is to start at a newer revision: it has
// nothing to tell. Requests that wait are answered together.
func (s *Stream) RequestProgress() {
	s.asked = s.hub.history.Revision()
	signal(s.wake)
}

// answerProgress puts the answer into the queue if it is due. What comes before
// it there has been found for revisions up to it.
func (s *Stream) answerProgress() {
	if s.asked == 0 || s.behind.size > 0 {
		return
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range s.watchers {
		if w.Start > s.asked {
			s.asked = 0
			return
		}
		if !w.synced {
			return // demoted just now; that wakes the stream
		}
	}
	switch {
	case len(s.watchers) == 0:
		s.asked = 0
	case h.mu.next <= s.asked:
		h.mu.waiting[s] = struct{}{}
	default:
		s.asked = 0
		s.force(item{revision: h.mu.next - 1, added: s.added})
	}
}

// outdated reports whether x, which is for all watchers, was made before one was
// added, for which it may not be true. Then it is asked for anew.
func (s *Stream) outdated(x *item) bool {
	if x.w != nil || x.added == s.added {
		return false
	}
	s.asked = max(s.asked, x.revision)
	return true
}

// Tick makes Next return the progress of each watcher that asked for it, is
// synced, and was sent nothing since the last tick.
func (s *Stream) Tick() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range s.watchers {
		if !w.Progress {
			continue
		}
		// One that starts later has next beyond what there is, up to its start.
		revision := max(h.mu.next, w.next) - 1
		if !w.active && !w.told && w.synced && w.Start <= revision {
			s.force(item{w: w, revision: revision})
			w.told = true
		}
		w.active = false
	}
}

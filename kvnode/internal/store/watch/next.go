package watch

// Ready is sent something whenever Next may have news again after it had none.
func (s *Stream) Ready() <-chan struct{} { return s.wake }

// Next returns the next response, if it has found one. It looks at a bounded
// part of the history only.
func (s *Stream) Next() (r Response, ok bool) {
	if r, ok = s.next(); ok {
		s.sent.Add(uint64(len(r.Events)))
	}
	return r, ok
}

func (s *Stream) next() (r Response, ok bool) {
	for _, w := range s.takeDemoted() {
		s.behind.add(w)
	}
	s.answerProgress()
	if len(s.ready) > 0 {
		return s.popReady(), true
	}
	// Queue and history take turns, so that neither keeps the other waiting.
	for range 2 {
		s.scan = !s.scan
		if s.scan {
			s.catchUp()
			if len(s.ready) > 0 {
				return s.popReady(), true
			}
			continue
		}
		x, ok := s.pop()
		if ok && !s.outdated(&x) {
			return x.response(), true
		}
		if ok {
			signal(s.wake)
		}
	}
	if s.behind.size > 0 || s.hasDemoted() {
		signal(s.wake)
	}
	return Response{}, false
}

func (s *Stream) popReady() Response {
	r := s.ready[0]
	s.ready[0] = Response{}
	s.ready = s.ready[1:]
	if r.Compacted != 0 {
		s.remove(s.watchers[r.ID])
	}
	return r
}

func (x *item) response() Response {
	if x.w == nil {
		return Response{ID: All, Revision: x.revision}
	}
	x.w.active = x.w.active || len(x.events) > 0
	x.w.told = x.w.told && len(x.events) > 0
	return Response{ID: x.w.ID, Revision: x.revision, Events: x.events, Fragment: x.w.Fragment}
}

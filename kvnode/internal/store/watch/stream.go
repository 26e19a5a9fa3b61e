package watch

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
)

var (
	// ErrEmptyRange says that a range ends before it begins. Its text is etcd's.
	ErrEmptyRange = errors.New("mvcc: watcher range is empty")
	// ErrDuplicateID says that a stream has a watcher of the ID that was asked
	// for. Its text is etcd's.
	ErrDuplicateID = errors.New("mvcc: duplicate watch ID provided on the WatchStream")
	// ErrReservedID says that a watcher cannot have the ID that was asked for.
	ErrReservedID = fmt.Errorf("kvnode: watch ID %d means all watchers of a stream", All)
)

// Stream is some watchers whose news one client gets. Its methods are called by
// one goroutine at a time.
type Stream struct {
	hub    *Hub          // immutable
	limits Limits        // immutable
	wake   chan struct{} // immutable

	queue queue
	// sent counts the events that Next has returned.
	sent atomic.Uint64

	// The rest is the caller's goroutine's.

	watchers map[int64]*watcher
	nextID   int64 // the ID to try next
	behind   *index
	// ready are responses to watchers that were behind. They come before what is
	// in the queue for the same watchers.
	ready []Response
	// scan says that it is the history's turn to give news, else the queue's.
	historyTurn bool
	// added is how many watchers there have been.
	added int
	// asked is the revision that the store had when progress was asked for last,
	// 0 if that is answered.
	progressAt int64
}

// NewStream returns a stream without watchers.
func (h *Hub) NewStream(l Limits) *Stream {
	s := &Stream{
		hub: h, limits: l.withDefaults(), wake: make(chan struct{}, 1),
		watchers: map[int64]*watcher{}, behind: newIndex(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.streams[s] = struct{}{}
	return s
}

// Watch adds a watcher, and returns its ID and the newest revision: a watcher
// that starts now gets what is newer. Key must not be changed. It returns a *FullError if
// there is no room for it.
func (s *Stream) Watch(r Request) (id, revision int64, err error) {
	h := s.hub
	// Counted before the revision is looked at: what is published in between is
	// kept for the watcher.
	h.open.Add(1)
	revision = h.history.Revision()
	if r.ID, err = s.newID(&r); err == nil {
		err = h.memory.reserve(&r)
	}
	if err != nil {
		h.open.Add(-1)
		return 0, revision, err
	}
	w := &watcher{Request: r, stream: s, next: r.Start}
	if r.Start == 0 {
		w.next = revision + 1
	}
	s.watchers[w.ID] = w
	s.added++
	s.queue.mu.Lock()
	s.queue.mu.extra++
	s.queue.mu.Unlock()
	s.assign(w, revision)
	return w.ID, revision, nil
}

// place lets the hub serve a new watcher, or the history if it is to get what
// the hub has passed by, or may pass by without a look at it.
func (s *Stream) assign(w *watcher, revision int64) {
	h := s.hub
	h.mu.Lock()
	synced := w.next > revision && w.next >= h.mu.next
	if synced {
		w.synced = true
		h.mu.synced.add(w)
	}
	h.mu.Unlock()
	if !synced {
		s.behind.add(w)
		signal(s.wake)
	}
	// What was published before it was counted may still be unnoticed.
	signal(h.wake)
}

// newID returns the ID for r.
func (s *Stream) newID(r *Request) (id int64, err error) {
	if len(r.End) > 0 && !isFrom(r.End) && bytes.Compare(r.Key, r.End) >= 0 {
		return 0, ErrEmptyRange
	}
	switch {
	case r.ID == All:
		return 0, ErrReservedID
	case r.ID != 0:
		if s.watchers[r.ID] != nil {
			return 0, ErrDuplicateID
		}
		return r.ID, nil
	}
	for s.watchers[s.nextID] != nil {
		s.nextID++
	}
	s.nextID++
	return s.nextID - 1, nil
}

// Len returns the number of watchers.
func (s *Stream) Len() int { return len(s.watchers) }

// Cancel removes a watcher and reports whether there was one of that ID. Next
// returns nothing for it from now on.
func (s *Stream) Cancel(id int64) bool {
	w := s.watchers[id]
	if w == nil {
		return false
	}
	s.remove(w)
	kept := s.ready[:0]
	for _, r := range s.ready {
		if r.ID != id {
			kept = append(kept, r)
		}
	}
	clear(s.ready[len(kept):])
	s.ready = kept
	return true
}

func (s *Stream) remove(w *watcher) {
	delete(s.watchers, w.ID)
	h := s.hub
	h.mu.Lock()
	synced := w.synced
	if synced {
		h.mu.synced.remove(w)
		w.synced = false
	}
	h.mu.Unlock()
	// If the hub had demoted it, it is either in the queue's list or in behind.
	s.drop(w)
	if w.home != nil {
		s.behind.remove(w)
	}
	h.open.Add(-1)
	h.memory.release(&w.Request)
}

// Close removes all watchers.
func (s *Stream) Close() {
	h := s.hub
	h.mu.Lock()
	for _, w := range s.watchers {
		h.memory.release(&w.Request)
		if w.synced {
			h.mu.synced.remove(w)
			w.synced = false
		}
	}
	delete(h.mu.waiting, s)
	if _, open := h.mu.streams[s]; open {
		delete(h.mu.streams, s)
		h.mu.sent += s.sent.Load()
	}
	h.mu.Unlock()
	h.open.Add(-int64(len(s.watchers)))
	clear(s.watchers)
	s.queue = queue{}
	s.behind, s.ready, s.progressAt = newIndex(), nil, 0
}

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
		s.historyTurn = !s.historyTurn
		if s.historyTurn {
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
	x.w.notified = x.w.notified || len(x.events) > 0
	x.w.progressQueued = x.w.progressQueued && len(x.events) > 0
	return Response{ID: x.w.ID, Revision: x.revision, Events: x.events, Fragment: x.w.Fragment}
}

// RequestProgress asks for a response with the ID All. Next returns it as soon
// as all watchers have got everything up to the newest revision of now. There is
// none if there is no watcher, or if one is to start at a newer revision: it has
// nothing to tell. Requests that wait are answered together.
func (s *Stream) RequestProgress() {
	s.progressAt = s.hub.history.Revision()
	signal(s.wake)
}

// answerProgress puts the answer into the queue if it is due. What comes before
// it there has been found for revisions up to it.
func (s *Stream) answerProgress() {
	if s.progressAt == 0 || s.behind.size > 0 {
		return
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range s.watchers {
		if w.Start > s.progressAt {
			s.progressAt = 0
			return
		}
		if !w.synced {
			return // demoted just now; that wakes the stream
		}
	}
	switch {
	case len(s.watchers) == 0:
		s.progressAt = 0
	case h.mu.next <= s.progressAt:
		h.mu.waiting[s] = struct{}{}
	default:
		s.progressAt = 0
		s.force(item{revision: h.mu.next - 1, added: s.added})
	}
}

// outdated reports whether x, which is for all watchers, was made before one was
// added, for which it may not be true. Then it is asked for anew.
func (s *Stream) outdated(x *item) bool {
	if x.w != nil || x.added == s.added {
		return false
	}
	s.progressAt = max(s.progressAt, x.revision)
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
		if !w.notified && !w.progressQueued && w.synced && w.Start <= revision {
			s.force(item{w: w, revision: revision})
			w.progressQueued = true
		}
		w.notified = false
	}
}

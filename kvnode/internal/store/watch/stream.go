package watch

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
)

var (
	// ErrEmptyRange means that the end of a range is not above its start. The text is etcd's.
	ErrEmptyRange = errors.New("mvcc: watcher range is empty")
	// ErrDuplicateID means that the stream already has a watcher with the requested ID. The
	// text is etcd's.
	ErrDuplicateID = errors.New("mvcc: duplicate watch ID provided on the WatchStream")
	// ErrReservedID means that a watcher cannot have the requested ID.
	ErrReservedID = fmt.Errorf("kvnode: watch ID %d means all watchers of a stream", All)
)

// Stream is a set of watchers that share one Watch stream of a client. One goroutine at a time calls its
// methods.
type Stream struct {
	hub    *Hub          // immutable
	limits limits        // immutable
	wake   chan struct{} // immutable

	queue queue
	// sent counts the events that Next has returned.
	sent atomic.Uint64

	// For the caller's goroutine only:

	watchers map[int64]*watcher
	nextID   int64 // the next ID to try
	behind   *index
	// ready holds responses from the history. They precede queued items of the same watchers.
	ready []Response
	// historyTurn is set if Next last read the history, and not the queue.
	historyTurn bool
	// added is the number of watchers that were ever added.
	added int
	// progressAt is the revision of the newest unanswered progress request, 0 for none.
	progressAt int64
}

// NewStream returns a stream without watchers.
func (h *Hub) NewStream() *Stream {
	s := &Stream{
		hub: h, limits: defaultLimits, wake: make(chan struct{}, 1),
		watchers: map[int64]*watcher{}, behind: newIndex(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.streams[s] = struct{}{}
	return s
}

// Watch adds a watcher. It returns the watcher's ID and the newest revision; a watcher without a
// start revision gets later ones. r.Key and r.End must not be changed. If the watchers use too much
// memory, it returns a *FullError.
func (s *Stream) Watch(r Request) (id, revision int64, err error) {
	h := s.hub
	// Before the revision is read: Publish keeps events from now on.
	h.watchers.Add(1)
	revision = h.history.Revision()
	if r.ID, err = s.newID(&r); err == nil {
		err = h.memory.reserve(&r)
	}
	if err != nil {
		h.watchers.Add(-1)
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

// assign makes a new watcher synced, or behind if it needs a revision that the store shows or that
// the hub has handled.
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
	// The inbox may hold a revision that was skipped before there was a watcher.
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

// Cancel removes a watcher and reports whether it existed. Next returns nothing for it any more.
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
	// A watcher that the hub has demoted is in the queue's list or in behind.
	s.drop(w)
	if w.home != nil {
		s.behind.remove(w)
	}
	h.watchers.Add(-1)
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
	h.watchers.Add(-int64(len(s.watchers)))
	clear(s.watchers)
	s.queue = queue{}
	s.behind, s.ready, s.progressAt = newIndex(), nil, 0
}

// Ready receives a value when Next may return a response again.
func (s *Stream) Ready() <-chan struct{} { return s.wake }

// Next returns the next response, if there is one. It reads a bounded part of the history.
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
	// Queue and history alternate, so neither delays the other.
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

// RequestProgress requests a response with ID All. Next returns it as soon as all watchers have got
// all events up to the revision of the request. There is none if the stream has no watcher, or if a
// watcher starts at a newer revision. Pending requests share one response.
func (s *Stream) RequestProgress() {
	s.progressAt = s.hub.history.Revision()
	signal(s.wake)
}

// answerProgress queues the response when it is due. Items before it in the queue have revisions up
// to its own.
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
			return // demoted just now, which wakes the stream
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

// outdated reports whether a watcher was added after x was queued. x reports progress for all
// watchers, which may be untrue for the new one. If so, progress is requested again.
func (s *Stream) outdated(x *item) bool {
	if x.w != nil || x.added == s.added {
		return false
	}
	s.progressAt = max(s.progressAt, x.revision)
	return true
}

// Tick queues a progress response for each synced watcher with Request.Progress that got no
// events since the last tick.
func (s *Stream) Tick() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range s.watchers {
		if !w.Progress {
			continue
		}
		// A new watcher may be ahead of the hub. One that starts later has no progress to report.
		revision := max(h.mu.next, w.next) - 1
		if !w.notified && !w.progressQueued && w.synced && w.Start <= revision {
			s.force(item{w: w, revision: revision})
			w.progressQueued = true
		}
		w.notified = false
	}
}

package watch

import (
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Defaults of Limits.
const (
	DefaultQueueEvents = 1 << 14
	DefaultQueueBytes  = 8 << 20
)

// Limits bound what is kept for a stream. A field that is 0 has its default.
type Limits struct {
	// QueueEvents and QueueBytes bound what waits for a stream that does not keep
	// up, besides one event for each of its watchers. Lower: it reads more of the
	// history, which costs it more than the queue.
	QueueEvents int
	QueueBytes  int
	// BatchEvents and BatchBytes are where a response ends, at the next end of a
	// revision, that is made of several revisions. Default: 1,024 and 1 MiB.
	BatchEvents int
	BatchBytes  int
	// ScanWrites is how many writes of the history are looked at, for all
	// watchers that are behind, before it is the queue's turn. Default: 4,096.
	ScanWrites int
}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		value    *int
		fallback int
	}{
		{&l.QueueEvents, DefaultQueueEvents},
		{&l.QueueBytes, DefaultQueueBytes},
		{&l.BatchEvents, 1024},
		{&l.BatchBytes, 1 << 20},
		{&l.ScanWrites, 4096},
	} {
		if *f.value <= 0 {
			*f.value = f.fallback
		}
	}
	return l
}

// item is what a synced watcher, or all of a stream, is to be told.
type item struct {
	w        *watcher // nil: all
	revision int64
	events   []*mvccpb.Event // none: progress
	size     int
	added    int // Stream.added, if w is nil
}

// queue is what the hub has left for a stream.
type queue struct {
	mu struct {
		sync.Mutex
		items  []item
		head   int
		events int
		bytes  int
		// room is for one event for each watcher, so that one revision that all of
		// them get does not exceed the queue.
		extra int
		// demoted are watchers whose items were refused, or whose events the hub
		// has not got.
		demoted []*watcher
	}
}

// push appends x and reports whether there was room.
func (s *Stream) push(x item) bool {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.events+len(x.events) > s.limits.QueueEvents+q.mu.extra || q.mu.bytes+x.size > s.limits.QueueBytes {
		return false
	}
	s.appendLocked(x)
	return true
}

// force appends x, which is small, whether there is room or not.
func (s *Stream) force(x item) {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.appendLocked(x)
}

func (s *Stream) appendLocked(x item) {
	q := &s.queue
	q.mu.events += len(x.events)
	q.mu.bytes += x.size
	q.mu.items = append(q.mu.items, x)
	if x.w != nil {
		x.w.queued++
	}
	signal(s.wake)
}

// demote hands the stream a watcher that is behind from now on.
func (s *Stream) demote(w *watcher) {
	q := &s.queue
	q.mu.Lock()
	q.mu.demoted = append(q.mu.demoted, w)
	q.mu.Unlock()
	signal(s.wake)
}

// pop takes the next item, and those after it that are the same watcher's as far
// as they fit one response. The first one's events may be shared.
func (s *Stream) pop() (x item, ok bool) {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if x, ok = q.popLocked(); !ok || x.w == nil || len(x.events) == 0 {
		return x, ok
	}
	for own := false; q.mu.head < len(q.mu.items); own = true {
		more := &q.mu.items[q.mu.head]
		if more.w != x.w || len(more.events) == 0 ||
			len(x.events)+len(more.events) > s.limits.BatchEvents || x.size+more.size > s.limits.BatchBytes {
			break
		}
		if !own {
			x.events = append(make([]*mvccpb.Event, 0, 8), x.events...)
		}
		x.events = append(x.events, more.events...)
		x.revision, x.size = more.revision, x.size+more.size
		_, _ = q.popLocked()
	}
	return x, true
}

func (q *queue) popLocked() (x item, ok bool) {
	if q.mu.head == len(q.mu.items) {
		q.resetLocked()
		return item{}, false
	}
	x = q.mu.items[q.mu.head]
	q.mu.items[q.mu.head] = item{}
	q.mu.head++
	q.mu.events -= len(x.events)
	q.mu.bytes -= x.size
	if x.w != nil {
		x.w.queued--
	}
	// What is consumed must not pile up in front of what is not.
	if q.mu.head >= 1024 && q.mu.head*2 >= len(q.mu.items) {
		n := copy(q.mu.items, q.mu.items[q.mu.head:])
		clear(q.mu.items[n:])
		q.mu.items, q.mu.head = q.mu.items[:n], 0
	}
	return x, true
}

// resetLocked makes an empty queue small again.
func (q *queue) resetLocked() {
	q.mu.head = 0
	q.mu.items = q.mu.items[:0]
	if cap(q.mu.items) > 4096 {
		q.mu.items = nil
	}
}

// drop removes the items of w, and what the hub has said of it.
func (s *Stream) drop(w *watcher) {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.extra--
	if w.queued > 0 {
		kept := q.mu.items[:0]
		for _, x := range q.mu.items[q.mu.head:] {
			if x.w == w {
				q.mu.events -= len(x.events)
				q.mu.bytes -= x.size
				continue
			}
			kept = append(kept, x)
		}
		clear(q.mu.items[len(kept):])
		q.mu.items, q.mu.head = kept, 0
		w.queued = 0
	}
	for i, d := range q.mu.demoted {
		if d == w {
			q.mu.demoted = append(q.mu.demoted[:i], q.mu.demoted[i+1:]...)
			break
		}
	}
}

func (s *Stream) hasDemoted() bool {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return len(s.queue.mu.demoted) > 0
}

// takeDemoted returns the watchers that the hub has demoted.
func (s *Stream) takeDemoted() []*watcher {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.mu.demoted
	q.mu.demoted = nil
	return all
}

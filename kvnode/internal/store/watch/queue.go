package watch

import (
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// limits bound the memory of a stream, and the work of one call of Next.
type limits struct {
	// queueEvents and queueBytes bound the queued events. One event for each watcher does not count
	// towards queueEvents. With lower limits, slow streams read more of the history, which costs
	// more than the queue.
	queueEvents, queueBytes int
	// batchEvents and batchBytes bound a response that merges several revisions. It still ends
	// with a complete revision.
	batchEvents, batchBytes int
	// scanWrites is how many writes of the history Next reads, for all watchers that are
	// behind, before it reads the queue again.
	scanWrites int
}

var defaultLimits = limits{queueEvents: 1 << 14, queueBytes: 8 << 20, batchEvents: 1024, batchBytes: 1 << 20, scanWrites: 4096}

// item is a queued response for one synced watcher, or for all.
type item struct {
	w        *watcher // nil: all watchers
	revision int64
	events   []*mvccpb.Event // empty: progress
	size     int
	added    int // Stream.added when the item was queued, if w is nil
}

// queue holds the items that the hub has queued for a stream.
type queue struct {
	mu struct {
		sync.Mutex
		items  []item
		head   int
		events int
		bytes  int
		// extra allows one event for each watcher, so one revision for all of them fits.
		extra int
		// demoted holds watchers that the hub has made fall behind. The stream moves them
		// to behind.
		demoted []*watcher
	}
}

// push appends x unless the queue is full.
func (s *Stream) push(x item) bool {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.events+len(x.events) > s.limits.queueEvents+q.mu.extra || q.mu.bytes+x.size > s.limits.queueBytes {
		return false
	}
	s.appendLocked(x)
	return true
}

// force appends x, a small item, even if the queue is full.
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

// demote passes a watcher that has fallen behind to the stream.
func (s *Stream) demote(w *watcher) {
	q := &s.queue
	q.mu.Lock()
	q.mu.demoted = append(q.mu.demoted, w)
	q.mu.Unlock()
	signal(s.wake)
}

// pop returns the next item, merged with the items after it for the same watcher that fit one
// response. The events of a single item may be shared and are not changed.
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
			len(x.events)+len(more.events) > s.limits.batchEvents || x.size+more.size > s.limits.batchBytes {
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
	// Consumed items must not pile up.
	if q.mu.head >= 1024 && q.mu.head*2 >= len(q.mu.items) {
		n := copy(q.mu.items, q.mu.items[q.mu.head:])
		clear(q.mu.items[n:])
		q.mu.items, q.mu.head = q.mu.items[:n], 0
	}
	return x, true
}

// resetLocked shrinks an empty queue.
func (q *queue) resetLocked() {
	q.mu.head = 0
	q.mu.items = q.mu.items[:0]
	if cap(q.mu.items) > 4096 {
		q.mu.items = nil
	}
}

// drop removes the items of w, and w from the demoted watchers.
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

// takeDemoted returns and clears the demoted watchers.
func (s *Stream) takeDemoted() []*watcher {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.mu.demoted
	q.mu.demoted = nil
	return all
}

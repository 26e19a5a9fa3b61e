package watch

import (
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// History is the part of *store.Store that a hub uses.
type History interface {
	Revision() int64
	CompactRevision() int64
	History(first int64, limit int, visit func(store.Write) bool) (next int64, err error)
}

// Hub passes the events of a store to streams.
type Hub struct {
	history History // set by Start
	inbox   inbox
	wake    chan struct{}
	stop    chan struct{}
	stopped sync.WaitGroup
	once    sync.Once

	memory memoryLimit
	// watchers is the number of watchers. While it is 0, Publish drops events.
	watchers atomic.Int64

	mu struct {
		sync.Mutex
		// next is the lowest revision that the hub has not handled.
		next   int64
		synced *index
		// waiting holds the streams to wake when next changes.
		waiting map[*Stream]struct{}
		// streams holds the open streams. sent is the number of events of the closed ones.
		streams map[*Stream]struct{}
		sent    uint64
		touched []*watcher // scratch
	}
}

// New returns a hub. Its Publish and Missed belong in the store's configuration. Start must be
// called when the store is open.
func New() *Hub {
	h := &Hub{wake: make(chan struct{}, 1), stop: make(chan struct{})}
	h.memory.limit = maxWatcherBytes
	h.inbox.maxEvents, h.inbox.maxBytes = inboxEvents, inboxBytes
	h.mu.synced = newIndex()
	h.mu.waiting = map[*Stream]struct{}{}
	h.mu.streams = map[*Stream]struct{}{}
	return h
}

// Start starts the hub for the store with that history.
func (h *Hub) Start(history History) {
	h.history = history
	h.mu.next = history.Revision() + 1
	h.stopped.Go(h.run)
}

// Close stops the hub. Streams get no more events, and need not be closed first.
func (h *Hub) Close() {
	h.once.Do(func() { close(h.stop) })
	h.stopped.Wait()
}

// Publish queues the events of a revision for the watchers. It is store.Config.Events.
func (h *Hub) Publish(rev int64, writes []store.Write) {
	// Without a watcher the events are not needed: a watcher that is added later starts at a
	// newer revision or in the history (see Stream.Watch).
	if h.watchers.Load() == 0 {
		h.inbox.skip(rev)
	} else {
		h.inbox.put(rev, writes)
	}
	if h.watchers.Load() != 0 {
		signal(h.wake)
	}
}

// Missed makes watchers read the history up to a revision, because its events were not published. It
// is store.Config.Restored.
func (h *Hub) Missed(rev int64) {
	h.inbox.skip(rev)
	signal(h.wake)
}

// signal wakes the receiver of c. Signals that nothing has received yet are merged.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (h *Hub) run() {
	var taken []revision
	for {
		select {
		case <-h.wake:
		case <-h.stop:
			return
		}
		taken = h.drain(taken)
	}
}

// drain handles the revisions in the inbox. spare becomes the inbox's next buffer, and drain returns
// the old one, cleared.
func (h *Hub) drain(spare []revision) []revision {
	taken := h.inbox.take(spare)
	for i := range taken {
		h.handle(&taken[i])
	}
	clear(taken)
	return taken
}

// handle delivers one revision to the synced watchers. Invariant: a synced watcher has got all
// events of its keys below next, or they are in its stream's queue.
func (h *Hub) handle(r *revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.rev >= h.mu.next {
		if r.skipped {
			h.resyncLocked(r.rev)
		} else {
			// The store skips no revision without calling Missed. If it did, watchers
			// would read the history.
			h.resyncLocked(r.rev - 1)
			h.deliverLocked(r)
		}
		h.mu.next = r.rev + 1
	}
	for s := range h.mu.waiting {
		signal(s.wake)
	}
	clear(h.mu.waiting)
}

// resyncLocked makes each synced watcher that still needs revision rev, or an earlier one, read
// the history.
func (h *Hub) resyncLocked(rev int64) {
	if rev < h.mu.next {
		return
	}
	h.mu.synced.each(func(w *watcher) {
		if w.next <= rev {
			w.next = max(w.next, h.mu.next)
			h.demoteLocked(w)
		}
	})
}

// demoteLocked makes a synced watcher fall behind.
func (h *Hub) demoteLocked(w *watcher) {
	h.mu.synced.remove(w)
	w.synced = false
	w.stream.demote(w)
}

func (h *Hub) deliverLocked(r *revision) {
	touched := h.mu.touched[:0]
	for _, write := range r.writes {
		one := event{write: write}
		h.mu.synced.match(write.KV.GetKey(), func(w *watcher) { touched = one.addTo(w, touched) })
	}
	for _, w := range touched {
		events, size := w.takeBatch()
		if !w.stream.push(item{w: w, revision: r.rev, events: events, size: size}) {
			w.next = r.rev
			h.demoteLocked(w)
		}
	}
	clear(touched)
	h.mu.touched = touched[:0]
}

func (w *watcher) takeBatch() (events []*mvccpb.Event, size int) {
	events, size = w.batch, w.size
	w.batch, w.size = nil, 0
	return events, size
}

// Limits of the inbox. Watchers read what exceeds them from the history.
const (
	inboxEvents = 1 << 16
	inboxBytes  = 64 << 20
)

// inbox holds the revisions that Apply has published and the hub has not handled.
type inbox struct {
	maxEvents, maxBytes int // immutable

	mu struct {
		sync.Mutex
		revisions []revision
		events    int
		bytes     int
	}
}

// revision holds the events of one revision. If skipped is set, it stands for all revisions up to
// rev, and watchers must read them from the history.
type revision struct {
	rev     int64
	writes  []store.Write
	skipped bool
}

// put adds the events of a revision, or skips the revision if the inbox is full.
func (b *inbox) put(rev int64, writes []store.Write) {
	size := 0
	for _, w := range writes {
		size += writeSize(w)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.events+len(writes) > b.maxEvents || b.mu.bytes+size > b.maxBytes {
		b.skipLocked(rev)
		return
	}
	b.mu.revisions = append(b.mu.revisions, revision{rev: rev, writes: writes})
	b.mu.events += len(writes)
	b.mu.bytes += size
}

// skip notes that the events up to a revision are not in the inbox.
func (b *inbox) skip(rev int64) {
	b.mu.Lock()
	b.skipLocked(rev)
	b.mu.Unlock()
}

func (b *inbox) skipLocked(rev int64) {
	if n := len(b.mu.revisions); n > 0 && b.mu.revisions[n-1].skipped {
		b.mu.revisions[n-1].rev = rev
		return
	}
	b.mu.revisions = append(b.mu.revisions, revision{rev: rev, skipped: true})
}

// take returns the content of the inbox. The cleared spare becomes its next buffer.
func (b *inbox) take(spare []revision) []revision {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.events, b.mu.bytes = 0, 0
	taken := b.mu.revisions
	b.mu.revisions = spare[:0]
	return taken
}

func writeSize(w store.Write) int {
	return eventOverhead + len(w.KV.GetKey()) + len(w.KV.GetValue()) + len(w.Prev.GetKey()) + len(w.Prev.GetValue())
}

// Stats describes the watchers of a hub.
type Stats struct {
	// Streams and Watchers are open now. Behind is the number of watchers that are not synced.
	Streams, Watchers, Behind int
	// Pending is the number of queued events, and Sent the number of events that streams have
	// returned since the start.
	Pending int
	Sent    uint64
}

// Stats returns the current numbers. It visits each stream, so that streams share no counter.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Stats{Streams: len(h.mu.streams), Watchers: int(h.watchers.Load()), Sent: h.mu.sent}
	st.Behind = max(st.Watchers-h.mu.synced.size, 0)
	for s := range h.mu.streams {
		st.Sent += s.sent.Load()
		s.queue.mu.Lock()
		st.Pending += s.queue.mu.events
		s.queue.mu.Unlock()
	}
	return st
}

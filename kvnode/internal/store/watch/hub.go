package watch

import (
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// History is what a hub needs of a *store.Store.
type History interface {
	Revision() int64
	CompactRevision() int64
	History(from int64, limit int, visit func(store.Write) bool) (next int64, err error)
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
	// open is how many there are. While it is 0, events are not kept.
	open atomic.Int64

	mu struct {
		sync.Mutex
		// next is the first revision that streams have not been given.
		next   int64
		synced *index
		// waiting are the streams that wait for next to move.
		waiting map[*Stream]struct{}
		// streams are those that are not closed, sent the events of those that are.
		streams map[*Stream]struct{}
		sent    uint64
		touched []*watcher // scratch
	}
}

// New returns a hub. Its Publish and Missed are for the store's configuration;
// Start comes once the store is open.
func New() *Hub {
	h := &Hub{wake: make(chan struct{}, 1), stop: make(chan struct{})}
	h.memory.limit = maxWatcherBytes
	h.inbox.maxEvents, h.inbox.maxBytes = inboxEvents, inboxBytes
	h.mu.synced = newIndex()
	h.mu.waiting = map[*Stream]struct{}{}
	h.mu.streams = map[*Stream]struct{}{}
	return h
}

// Start begins to pass events on. They are of the store that history is of.
func (h *Hub) Start(history History) {
	h.history = history
	h.mu.next = history.Revision() + 1
	h.stopped.Go(h.run)
}

// Close ends the hub. Its streams get no more events, and need not be closed
// before.
func (h *Hub) Close() {
	h.once.Do(func() { close(h.stop) })
	h.stopped.Wait()
}

// Publish is store.Config.Events.
func (h *Hub) Publish(number int64, writes []store.Write) {
	// A watcher that is created after this begins with a newer revision, or with
	// the history: see Stream.Watch.
	if h.open.Load() == 0 {
		h.inbox.skip(number)
	} else {
		h.inbox.put(number, writes)
	}
	if h.open.Load() != 0 {
		signal(h.wake)
	}
}

// Missed is store.Config.Restored.
func (h *Hub) Missed(number int64) {
	h.inbox.skip(number)
	signal(h.wake)
}

// signal makes one receive from c, now or later, return.
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

// drain passes on what is in the inbox. It keeps spare for what comes, and
// returns what to give it the next time.
func (h *Hub) drain(spare []revision) []revision {
	taken := h.inbox.take(spare)
	for i := range taken {
		h.handle(&taken[i])
	}
	clear(taken)
	return taken
}

// pass gives a revision to those who watch.
func (h *Hub) handle(r *revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.number >= h.mu.next {
		if r.skipped {
			h.resyncLocked(r.number)
		} else {
			// A store skips no revision without a word; if it did, the history
			// would have it.
			h.resyncLocked(r.number - 1)
			h.deliverLocked(r)
		}
		h.mu.next = r.number + 1
	}
	for s := range h.mu.waiting {
		signal(s.wake)
	}
	clear(h.mu.waiting)
}

// resyncLocked sends the watchers that have not got revision number to the
// history.
func (h *Hub) resyncLocked(number int64) {
	if number < h.mu.next {
		return
	}
	h.mu.synced.each(func(w *watcher) {
		if w.next <= number {
			w.next = max(w.next, h.mu.next)
			h.demoteLocked(w)
		}
	})
}

// demoteLocked makes a synced watcher one that is behind.
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
		if !w.stream.push(item{w: w, revision: r.number, events: events, size: size}) {
			w.next = r.number
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

// The inbox holds up to so many events, of so many bytes, which the hub has not
// come to. What exceeds it is left to the history.
const (
	inboxEvents = 1 << 16
	inboxBytes  = 64 << 20
)

// inbox is what Apply has left for the hub.
type inbox struct {
	maxEvents, maxBytes int // immutable

	mu struct {
		sync.Mutex
		revisions []revision
		events    int
		bytes     int
	}
}

// revision is the events of one, or word that all up to it have to be fetched
// from the history.
type revision struct {
	number  int64
	writes  []store.Write
	skipped bool
}

// put adds the events of a revision.
func (b *inbox) put(number int64, writes []store.Write) {
	size := 0
	for _, w := range writes {
		size += writeSize(w)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.events+len(writes) > b.maxEvents || b.mu.bytes+size > b.maxBytes {
		b.skipLocked(number)
		return
	}
	b.mu.revisions = append(b.mu.revisions, revision{number: number, writes: writes})
	b.mu.events += len(writes)
	b.mu.bytes += size
}

// miss notes that the events up to a revision are not given.
func (b *inbox) skip(number int64) {
	b.mu.Lock()
	b.skipLocked(number)
	b.mu.Unlock()
}

func (b *inbox) skipLocked(number int64) {
	if n := len(b.mu.revisions); n > 0 && b.mu.revisions[n-1].skipped {
		b.mu.revisions[n-1].number = number
		return
	}
	b.mu.revisions = append(b.mu.revisions, revision{number: number, skipped: true})
}

// take returns what is there, and keeps spare for what comes.
func (b *inbox) take(spare []revision) []revision {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.events, b.mu.bytes = 0, 0
	clear(spare) // drops what its elements refer to
	taken := b.mu.revisions
	b.mu.revisions = spare[:0]
	return taken
}

func writeSize(w store.Write) int {
	return eventOverhead + len(w.KV.GetKey()) + len(w.KV.GetValue()) + len(w.Prev.GetKey()) + len(w.Prev.GetValue())
}

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

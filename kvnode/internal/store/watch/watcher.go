package watch

import (
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Request says what to watch.
type Request struct {
	// ID names the watcher on its stream; with 0 the stream picks.
	ID int64
	// Key and End are as in a range request: without End it is Key alone, with
	// "\0" all from Key on, else all from Key on that are below End.
	Key, End []byte
	// Start is the first revision. 0 means those that are yet to come.
	Start int64
	// NoPut and NoDelete leave events out.
	NoPut, NoDelete bool
	// PrevKV asks for the version before each event.
	PrevKV bool
	// Progress asks for a response now and then while nothing happens.
	Progress bool
	// Fragment says that a response may be split. It is handed back with each.
	Fragment bool
}

// Response is news for a watcher.
type Response struct {
	// ID is the watcher's, or All.
	ID int64
	// Revision is the one up to which the watcher has got everything, with this.
	Revision int64
	// Events are in order, and shared: they must not be changed. Without any, the
	// response tells of progress.
	Events []*mvccpb.Event
	// Compacted is 0, or the compacted revision because of which the watcher has
	// ended.
	Compacted int64
	// Fragment is the request's.
	Fragment bool
}

// All is the ID of a response that concerns all watchers of its stream.
const All = -1

// watcher is one watch on a stream. Which goroutine may touch the rest of it depends on
// where it is: the hub's lock is needed while it is synced, else it is its
// stream's alone.
type watcher struct {
	Request         // immutable
	stream  *Stream // immutable

	// next is the first revision that it may get. A synced watcher has got, or
	// has in its stream's queue, what is below the hub's next revision too.
	next   int64
	synced bool
	// home and place say where it is in the index that it is in.
	home *bucket
	pos  int
	// batch collects events while an index is being matched.
	batch []*mvccpb.Event
	size  int

	// queued is how many items of the stream's queue are its. Under the lock of
	// the queue; once it is behind, the number only falls.
	queued int

	// The stream's only:

	// active says that it was sent something since the last tick, told that its progress is
	// in the queue: however slow its client, there is one at a time.
	notified, progressQueued bool
}

// wants reports whether the watcher asked for events of the kind.
func (w *watcher) wants(deleted bool) bool {
	if deleted {
		return !w.NoDelete
	}
	return !w.NoPut
}

// event is one write as watchers get it. It is made once for all of them, in two
// forms: lists of one, which are copied by whoever appends to them.
type event struct {
	write       store.Write
	kv          *mvccpb.KeyValue // of both, once there is one
	plain, prev []*mvccpb.Event
}

// eventOverhead is about what an event takes besides its keys and values.
const eventOverhead = 64

// size is about what the event takes in a response to w.
func (e *event) size(w *watcher) int {
	n := eventOverhead + len(e.write.KV.GetKey()) + len(e.write.KV.GetValue())
	if w.PrevKV {
		n += len(e.write.Prev.GetKey()) + len(e.write.Prev.GetValue())
	}
	return n
}

// give adds the event to the batch of w, and w to touched if it is the first
// there, provided that w wants it.
func (e *event) addTo(w *watcher, touched []*watcher) []*watcher {
	if e.write.KV.GetModRevision() < w.next || !w.wants(e.write.Deleted) {
		return touched
	}
	w.size += e.size(w)
	if len(w.batch) == 0 {
		w.batch = e.eventsFor(w)
		return append(touched, w)
	}
	w.batch = append(w.batch, e.eventsFor(w)...)
	return touched
}

// of returns the event as w wants it.
func (e *event) eventsFor(w *watcher) []*mvccpb.Event {
	if w.PrevKV && e.write.Prev != nil {
		if e.prev == nil {
			e.prev = e.list(e.write.Prev.Message())
		}
		return e.prev
	}
	if e.plain == nil {
		e.plain = e.list(nil)
	}
	return e.plain
}

func (e *event) list(prev *mvccpb.KeyValue) []*mvccpb.Event {
	if e.kv == nil {
		e.kv = e.write.KV.Message()
	}
	m := &mvccpb.Event{Kv: e.kv, PrevKv: prev}
	if e.write.Deleted {
		m.Type = mvccpb.Event_DELETE
	}
	return []*mvccpb.Event{m}
}

const (
	// maxBytes is what all watchers of a member may take, about: two million small ones.
	// More: clients that do nothing but watch take a member's memory. Less: honest ones
	// are refused.
	maxWatcherBytes = 1 << 30
	// watcherBytes is what a watcher takes besides its keys, with its places in an index.
	watcherBytes = 512
)

// FullError says that a member's watchers may not take more memory.
type FullError struct {
	// Bytes are what the watcher that is refused would take, Taken what all others take, of
	// Most.
	Bytes, Taken, Most int64
}

// Error implements error. A client has only the text.
func (e *FullError) Error() string {
	return fmt.Sprintf("kvnode: a watch of %d bytes finds no room (ResourceExhausted): all others of this member take %d of %d bytes", e.Bytes, e.Taken, e.Most)
}

// room is the memory of all watchers.
type memoryLimit struct {
	limit int64 // immutable
	used  atomic.Int64
}

// bytes is what a watcher takes: an index has its keys once more.
func (r *Request) bytes() int64 { return watcherBytes + 2*int64(len(r.Key)+len(r.End)) }

func (m *memoryLimit) reserve(r *Request) error {
	bytes := r.bytes()
	if all := m.used.Add(bytes); all > m.limit {
		m.used.Add(-bytes)
		return &FullError{Bytes: bytes, Taken: all - bytes, Most: m.limit}
	}
	return nil
}

func (m *memoryLimit) release(r *Request) { m.used.Add(-r.bytes()) }

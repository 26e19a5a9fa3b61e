package watch

import (
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Request describes a watcher.
type Request struct {
	// ID identifies the watcher on its stream. 0: the stream chooses.
	ID int64
	// Key and End form a range as in a range request: an empty End means Key alone, and "\0"
	// means all keys from Key on.
	Key, End []byte
	// Start is the first revision. 0: the next one.
	Start int64
	// NoPut and NoDelete filter events.
	NoPut, NoDelete bool
	// PrevKV asks for the previous version of each event.
	PrevKV bool
	// Progress asks for regular responses without events.
	Progress bool
	// Fragment allows splitting a response. Each Response repeats it.
	Fragment bool
}

// Response is a message for a watcher.
type Response struct {
	// ID is the watcher's, or All.
	ID int64
	// Revision is the revision up to which the watcher has now got all events; with Compacted it is the
	// newest one.
	Revision int64
	// Events are in order. They are shared and must not be changed. Without events, the
	// response reports progress.
	Events []*mvccpb.Event
	// Compacted is the compacted revision if the watcher has ended because of it, else 0.
	Compacted int64
	// Fragment is the request's.
	Fragment bool
}

// All is the ID of a response for all watchers of a stream.
const All = -1

// watcher is a watcher of a stream. While it is synced, its mutable fields are guarded by the hub's
// lock. Otherwise they belong to the stream.
type watcher struct {
	Request         // immutable
	stream  *Stream // immutable

	// next is the lowest revision that it may get. A synced watcher has got all revisions below
	// the hub's next as well, or has them in its stream's queue.
	next   int64
	synced bool
	// home and pos are its position in its index.
	home *bucket
	pos  int
	// batch collects events during a match. size is their size.
	batch []*mvccpb.Event
	size  int

	// queued is the number of its items in the stream's queue, under the queue's lock. While
	// the watcher is behind, it only decreases.
	queued int

	// For the stream's goroutine only:

	// notified is set if it got events since the last tick. progressQueued is set while a
	// progress response is queued, so a slow client has at most one per watcher.
	notified, progressQueued bool
}

// wants reports whether the watcher asked for such events.
func (w *watcher) wants(deleted bool) bool {
	if deleted {
		return !w.NoDelete
	}
	return !w.NoPut
}

// event builds the etcd messages of one write, once for all watchers, with and without the previous
// version. The lists have one element and no spare capacity, so append copies them.
type event struct {
	write       store.Write
	kv          *mvccpb.KeyValue // shared by both lists, built on demand
	plain, prev []*mvccpb.Event
}

// eventOverhead is the approximate size of an event without keys and values.
const eventOverhead = 64

// size returns the approximate size of the event in a response to w.
func (e *event) size(w *watcher) int {
	n := eventOverhead + len(e.write.KV.GetKey()) + len(e.write.KV.GetValue())
	if w.PrevKV {
		n += len(e.write.Prev.GetKey()) + len(e.write.Prev.GetValue())
	}
	return n
}

// addTo appends the event to the batch of w if w wants it, and w to touched if the batch was empty.
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

// eventsFor returns the event for w, with or without the previous version.
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
	// maxWatcherBytes limits the memory of all watchers of a member, to about two million small
	// ones. Without a limit, clients could exhaust the member's memory by watching.
	maxWatcherBytes = 1 << 30
	// watcherBytes is the approximate size of a watcher without its keys, including its index
	// entries.
	watcherBytes = 512
)

// FullError means that the watchers of the member use too much memory for another one.
type FullError struct {
	// Bytes is the size of the rejected watcher, Used that of all others.
	Bytes, Used, Limit int64
}

// Error implements error. Clients see only the text.
func (e *FullError) Error() string {
	return fmt.Sprintf("kvnode: watch of %d bytes rejected (ResourceExhausted): the other watches of this member use %d of %d bytes; cancel some of them", e.Bytes, e.Used, e.Limit)
}

// memoryLimit limits the memory of all watchers.
type memoryLimit struct {
	limit int64 // immutable
	used  atomic.Int64
}

// bytes returns the size of a watcher. The index holds its keys a second time.
func (r *Request) bytes() int64 { return watcherBytes + 2*int64(len(r.Key)+len(r.End)) }

func (m *memoryLimit) reserve(r *Request) error {
	bytes := r.bytes()
	if all := m.used.Add(bytes); all > m.limit {
		m.used.Add(-bytes)
		return &FullError{Bytes: bytes, Used: all - bytes, Limit: m.limit}
	}
	return nil
}

func (m *memoryLimit) release(r *Request) { m.used.Add(-r.bytes()) }

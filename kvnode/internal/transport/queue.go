package transport

import (
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// queue holds the messages of one stream to one peer. Any goroutine adds, the
// writer takes. What is taken counts until it is written, so that the limits
// bound all that the stream holds on to.
type queue struct {
	limits streamLimits
	// hold is how long messages wait for a connection; 0 takes none without.
	hold  time.Duration
	ready chan struct{} // holds a token while there may be something to take

	mu struct {
		sync.Mutex
		items []item
		// count and bytes include what the writer has taken.
		count, bytes int
		up           bool
	}
}

type item struct {
	m    *raftpb.Message
	size int
	at   time.Time // zero while there is a connection
}

func newQueue(lim streamLimits, hold time.Duration) *queue {
	return &queue{limits: lim, hold: hold, ready: make(chan struct{}, 1)}
}

// add queues m and returns how many messages were lost over it, m included. A
// message that finds the queue empty is taken whatever its size.
func (q *queue) add(m *raftpb.Message) (lost int) {
	it := item{m: m, size: sizeOf(m)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.up {
		if q.hold == 0 {
			return 1
		}
		it.at = time.Now()
		lost = q.expireLocked(it.at)
	}
	if !q.roomLocked(it.size) {
		return lost + 1
	}
	q.mu.items = append(q.mu.items, it)
	q.mu.count++
	q.mu.bytes += it.size
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return lost
}

// takes reports whether add would take a message of that size.
func (q *queue) takes(size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return (q.mu.up || q.hold > 0) && q.roomLocked(size)
}

func (q *queue) roomLocked(size int) bool {
	return q.mu.count < q.limits.count && (q.mu.count == 0 || q.mu.bytes+size <= q.limits.bytes)
}

// take returns everything queued, in order, to be given back with done. The
// array of the batch before is used again.
func (q *queue) take(reuse []item) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(reuse) // drops what its elements refer to
	taken := q.mu.items
	q.mu.items = reuse[:0]
	return taken
}

// done says that what was taken is written, or lost.
func (q *queue) done(taken []item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range taken {
		q.dropLocked(&taken[i])
	}
}

// open says that there is a connection, and returns how many messages had
// waited for it too long.
func (q *queue) open() (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.up = true
	return q.expireLocked(time.Now())
}

// shut says that the connection is gone, and returns how many messages went
// with it.
func (q *queue) shut() (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.up = false
	lost = len(q.mu.items)
	for i := range q.mu.items {
		q.dropLocked(&q.mu.items[i])
	}
	q.mu.items = nil
	return lost
}

// expireLocked drops what has waited for longer than hold.
func (q *queue) expireLocked(now time.Time) (lost int) {
	for lost < len(q.mu.items) && now.Sub(q.mu.items[lost].at) > q.hold {
		q.dropLocked(&q.mu.items[lost])
		lost++
	}
	q.mu.items = q.mu.items[lost:]
	return lost
}

func (q *queue) dropLocked(it *item) {
	q.mu.count--
	q.mu.bytes -= it.size
	*it = item{}
}

// held returns what the stream holds on to.
func (q *queue) held() (count, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.count, q.mu.bytes
}

// sizeOf estimates what m holds on to, without walking it as protobuf would.
func sizeOf(m *raftpb.Message) int {
	const perMessage, perEntry = 256, 128
	n := perMessage + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += perEntry + len(e.GetData())
	}
	return n
}

package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// flushAt is how many bytes are gathered before they are written.
const flushAt = 256 << 10

// session is one connection of a link, while it lasts. The writer's goroutine
// owns it; pinged is shared with the one that awaits answers.
type session struct {
	*link
	conn net.Conn
	buf  []byte // reused by all writes
	// batch is what was taken from the queue last.
	batch []item
	// pinged is when the ping was sent that has no answer yet, in nanoseconds
	// since began; 0 if there is none.
	pinged atomic.Int64
	began  time.Time
}

// serve writes what is queued to c until that fails or ctx ends. It returns
// once c is closed and nobody uses it.
func (l *link) serve(ctx context.Context, c net.Conn) error {
	s := &session{link: l, conn: c, began: time.Now()}
	stop := context.AfterFunc(ctx, func() { closeQuietly(c) })
	answers := make(chan error, 1)
	go func() { answers <- s.listen() }()
	heard, err := s.write(ctx, answers)
	stop()
	closeQuietly(c)
	if !heard {
		// Why the peer closed the connection says more than that a write failed.
		if why := <-answers; !isClosed(why) && ctx.Err() == nil {
			err = why
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// write is the writer. It reports whether it has taken the result of listen.
func (s *session) write(ctx context.Context, answers <-chan error) (heard bool, err error) {
	ticker := time.NewTicker(s.lim.ping)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case err := <-answers:
			return true, err
		case <-ticker.C:
			err = s.ping()
		case <-s.queue.ready:
			err = s.flush()
		}
		if err != nil {
			return false, err
		}
	}
}

// flush writes everything that is queued.
func (s *session) flush() error {
	s.batch = s.queue.take(s.batch)
	defer s.queue.done(s.batch)
	gathered := 0 // messages in the buffer
	for i := range s.batch {
		b, err := appendFrame(s.buf, s.batch[i].m)
		s.buf = b
		if err != nil {
			// Nobody could read it, so it is lost, and the connection is not.
			s.lose(1)
			s.peer.complain.Do(func() { s.log.Error("cannot send message", "error", err) })
		} else {
			gathered++
		}
		if len(s.buf) < flushAt && i < len(s.batch)-1 {
			continue
		}
		if err := s.send(); err != nil {
			s.lose(gathered + len(s.batch) - 1 - i)
			return err
		}
		s.counter().sent.Add(uint64(gathered))
		gathered = 0
	}
	return nil
}

// send writes what is in the buffer.
func (s *session) send() error {
	if len(s.buf) == 0 {
		return nil
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.lim.write)); err != nil {
		return err
	}
	n, err := s.conn.Write(s.buf)
	s.counter().sentBytes.Add(uint64(n))
	if s.buf = s.buf[:0]; cap(s.buf) > keepBuffer {
		s.buf = nil
	}
	if err != nil {
		return broken("write to peer", err)
	}
	return nil
}

func (s *session) counter() *outCounts { return &s.peer.counts.out[s.kind] }

// ping asks for a sign of life, and gives up if the last one was not given.
func (s *session) ping() error {
	now := time.Since(s.began)
	if at := time.Duration(s.pinged.Load()); at > 0 {
		if now-at > s.lim.timeout {
			return fmt.Errorf("no sign of life for %v", now-at)
		}
		return nil
	}
	s.pinged.Store(int64(now))
	s.buf = appendPing(s.buf)
	return s.send()
}

var pong = appendPing(nil)

// listen awaits the answers to pings, and the end of the connection. A peer that
// closes it is noticed at once, and not at the next write.
func (s *session) listen() error {
	got := make([]byte, len(pong))
	for {
		if _, err := io.ReadFull(s.conn, got); err != nil {
			return broken("await sign of life", err)
		}
		at := time.Duration(s.pinged.Swap(0))
		if at == 0 || !bytes.Equal(got, pong) {
			closeQuietly(s.conn)
			return errUnexpected
		}
		s.roundTrip(time.Since(s.began) - at)
	}
}

var errUnexpected = errors.New("the peer sends what it must not")

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

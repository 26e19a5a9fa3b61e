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

// flushAt is the number of bytes that writeQueued collects for one write.
const flushAt = 256 << 10

// connWriter writes the messages of a link to one connection. The goroutine of
// write owns it. Only pinged is shared, with the goroutine of readPongs.
type connWriter struct {
	*link
	conn net.Conn
	buf  []byte // reused by all writes
	// batch is the last result of queue.drain.
	batch []item
	// pinged is the time of the unanswered ping, in nanoseconds since began, or 0 if there is none.
	pinged atomic.Int64
	began  time.Time
}

// serve writes queued messages to c until a write fails or ctx ends. When it
// returns, c is closed and no goroutine uses it.
func (l *link) serve(ctx context.Context, c net.Conn) error {
	s := &connWriter{link: l, conn: c, began: time.Now()}
	stop := context.AfterFunc(ctx, func() { closeQuietly(c) })
	answers := make(chan error, 1)
	go func() { answers <- s.readPongs() }()
	heard, err := s.write(ctx, answers)
	stop()
	closeQuietly(c)
	if !heard {
		// The peer's reason to close the connection explains more than a failed write.
		if why := <-answers; !isClosed(why) && ctx.Err() == nil {
			err = why
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// write is the loop of the writer. heard is true if it has received the result of
// readPongs.
func (s *connWriter) write(ctx context.Context, answers <-chan error) (heard bool, err error) {
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
			err = s.writeQueued()
		}
		if err != nil {
			return false, err
		}
	}
}

// writeQueued writes all queued messages.
func (s *connWriter) writeQueued() error {
	s.batch = s.queue.drain(s.batch)
	defer s.queue.release(s.batch)
	gathered := 0 // messages in the buffer
	for i := range s.batch {
		b, err := appendFrame(s.buf, s.batch[i].m)
		s.buf = b
		if err != nil {
			// Only this message is lost. The connection remains usable.
			s.countLost(1)
			s.peer.logLimit.Do(func() { s.log.Error("cannot send message", "error", err) })
		} else {
			gathered++
		}
		if len(s.buf) < flushAt && i < len(s.batch)-1 {
			continue
		}
		if err := s.send(); err != nil {
			s.countLost(gathered + len(s.batch) - 1 - i)
			return err
		}
		s.counter().sent.Add(uint64(gathered))
		gathered = 0
	}
	return nil
}

// send writes the buffer.
func (s *connWriter) send() error {
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

func (s *connWriter) counter() *outCounts { return &s.peer.counts.out[s.kind] }

// ping sends a ping, unless one is unanswered. It fails if that one is older than
// the timeout.
func (s *connWriter) ping() error {
	now := time.Since(s.began)
	if at := time.Duration(s.pinged.Load()); at > 0 {
		if now-at > s.lim.timeout {
			return fmt.Errorf("no answer to a ping for %v", now-at)
		}
		return nil
	}
	s.pinged.Store(int64(now))
	s.buf = appendPing(s.buf)
	return s.send()
}

var pong = appendPing(nil)

// readPongs reads the answers to pings. It notices at once if the peer closes the
// connection. The writer would notice only at its next write.
func (s *connWriter) readPongs() error {
	got := make([]byte, len(pong))
	for {
		if _, err := io.ReadFull(s.conn, got); err != nil {
			return broken("wait for a ping's answer", err)
		}
		at := time.Duration(s.pinged.Swap(0))
		if at == 0 || !bytes.Equal(got, pong) {
			closeQuietly(s.conn)
			return errUnexpected
		}
		s.roundTrip(time.Since(s.began) - at)
	}
}

var errUnexpected = errors.New("the peer sent something else than an answer to a ping")

// queue holds the messages of one stream to one peer. Any goroutine pushes, the
// writer drains. Drained messages count until the writer releases them, so the
// limits cover all memory of the stream.
type queue struct {
	limits streamLimits
	// maxWait is the time for which messages wait for a connection. If it is 0, the
	// queue takes messages only while there is a connection.
	maxWait time.Duration
	ready   chan struct{} // holds a token while the queue may have messages

	mu struct {
		sync.Mutex
		items []item
		// count and bytes include drained messages.
		count, bytes int
		connected    bool
	}
}

type item struct {
	m    *raftpb.Message
	size int
	at   time.Time // of push; zero if there was a connection
}

func newQueue(lim streamLimits, maxWait time.Duration) *queue {
	return &queue{limits: lim, maxWait: maxWait, ready: make(chan struct{}, 1)}
}

// push queues m and returns the number of messages that it dropped, which may
// include m. An empty queue takes a message of any size.
func (q *queue) push(m *raftpb.Message) (lost int) {
	it := item{m: m, size: sizeOf(m)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.connected {
		if q.maxWait == 0 {
			return 1
		}
		it.at = time.Now()
		lost = q.expireLocked(it.at)
	}
	if !q.fitsLocked(it.size) {
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

// accepts reports whether push would take a message of that size.
func (q *queue) accepts(size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return (q.mu.connected || q.maxWait > 0) && q.fitsLocked(size)
}

func (q *queue) fitsLocked(size int) bool {
	return q.mu.count < q.limits.count && (q.mu.count == 0 || q.mu.bytes+size <= q.limits.bytes)
}

// drain returns all queued messages in order. The caller must release them. reuse is the previous result: its array
// holds the next messages.
func (q *queue) drain(reuse []item) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(reuse) // frees the messages
	taken := q.mu.items
	q.mu.items = reuse[:0]
	return taken
}

// release removes drained messages, which are written or lost, from the counts.
func (q *queue) release(taken []item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range taken {
		q.dropLocked(&taken[i])
	}
}

// connect tells the queue that there is a connection. It returns the number of
// messages that it dropped because they were older than maxWait.
func (q *queue) connect() (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.connected = true
	return q.expireLocked(time.Now())
}

// disconnect tells the queue that the connection has ended. It drops all messages
// and returns their number.
func (q *queue) disconnect() (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.connected = false
	lost = len(q.mu.items)
	for i := range q.mu.items {
		q.dropLocked(&q.mu.items[i])
	}
	q.mu.items = nil
	return lost
}

// expireLocked drops messages that are older than maxWait.
func (q *queue) expireLocked(now time.Time) (lost int) {
	for lost < len(q.mu.items) && now.Sub(q.mu.items[lost].at) > q.maxWait {
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

// usage returns the number and the size of queued and drained messages.
func (q *queue) usage() (count, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.count, q.mu.bytes
}

// sizeOf estimates the memory of m. It is faster than proto.Size.
func sizeOf(m *raftpb.Message) int {
	const perMessage, perEntry = 256, 128
	n := perMessage + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += perEntry + len(e.GetData())
	}
	return n
}

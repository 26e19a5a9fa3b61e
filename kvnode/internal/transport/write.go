package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
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

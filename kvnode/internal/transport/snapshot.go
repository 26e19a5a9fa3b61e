package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// SendSnapshot streams m and its state to m.To in the background, closes state, and calls SnapshotSent.
// One snapshot at a time goes to a peer; a second one fails. State is closed as
// soon as the last of it is written, before the peer has made it durable.
func (t *Transport) SendSnapshot(m *raftpb.Message, state State) {
	if !t.spawn(func() { t.sendSnapshot(m, state) }) && state != nil {
		_ = state.Close() // nobody is left to tell
	}
}

func (t *Transport) sendSnapshot(m *raftpb.Message, state State) {
	to, began := m.GetTo(), time.Now()
	log := t.cfg.Logger.With("peer", t.cfg.Called(to), "index", m.GetSnapshot().GetMetadata().GetIndex())
	s := &sending{t: t, m: m, state: state}
	err := s.run()
	if e := s.release(); e != nil && err == nil {
		// The peer has it, whatever happened to the source.
		log.Warn("cannot close the state of a snapshot", "error", e)
	}
	if err != nil {
		t.totals.complain.Do(func() { log.Warn("snapshot was not sent", "error", err, "took", time.Since(began)) })
	} else {
		log.Info("snapshot was sent", "bytes", s.size, "took", time.Since(began))
	}
	t.cfg.Handler.SnapshotSent(to, err)
}

// sending is a snapshot on its way. One goroutine owns it.
type sending struct {
	t     *Transport
	m     *raftpb.Message
	state State
	size  int64
	once  sync.Once
}

// release closes the state, once.
func (s *sending) release() (err error) {
	s.once.Do(func() {
		if s.state != nil {
			err = s.state.Close()
		}
	})
	return err
}

func (s *sending) run() error {
	p := s.t.peer(s.m.GetTo())
	switch {
	case s.state == nil:
		return errors.New("snapshot has no state: MsgSnap must go through SendSnapshot")
	case s.m.GetType() != raftpb.MsgSnap:
		return fmt.Errorf("%s is no snapshot", s.m.GetType())
	case p == nil:
		return fmt.Errorf("member %s is not known", ID(s.m.GetTo()))
	case !p.sending.CompareAndSwap(false, true):
		return fmt.Errorf("a snapshot to member %s is under way", ID(p.id))
	}
	defer p.sending.Store(false)
	c, err := s.connect(p)
	if err != nil {
		p.counts.out[snapshots].lost.Add(1)
		return err
	}
	p.counts.out[snapshots].connects.Add(1)
	if err = s.stream(p, c); err != nil {
		p.counts.out[snapshots].lost.Add(1)
		return err
	}
	p.counts.out[snapshots].sent.Add(1)
	return nil
}

// connect tries each of the peer's addresses once.
func (s *sending) connect(p *peer) (net.Conn, error) {
	errs := []error{errors.New("no address answers")}
	for _, addr := range *p.addrs.Load() {
		c, _, err := s.t.dial(p.ctx, addr, p.id, snapshots)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// verdictTime is how long after a failed write the receiver's words are waited
// for. They are there already, or never come.
const verdictTime = 500 * time.Millisecond

// stream sends everything and awaits the answer. It closes c.
func (s *sending) stream(p *peer, c net.Conn) error {
	stop := context.AfterFunc(p.ctx, func() { closeQuietly(c) })
	defer stop()
	answer := make(chan error, 1)
	go func() {
		err := awaitAnswer(c, s.t.limits.stall)
		if err != nil {
			closeQuietly(c) // which ends a write under way
		}
		answer <- err
	}()
	err := s.write(p, c)
	if e := s.release(); e != nil && err == nil {
		err = fmt.Errorf("close state: %w", e)
	}
	if err != nil {
		// The receiver may have said why, and then hung up under our writes.
		hurry := time.AfterFunc(verdictTime, func() { closeQuietly(c) })
		defer hurry.Stop()
	}
	said := <-answer
	closeQuietly(c)
	if p.ctx.Err() != nil {
		return fmt.Errorf("send snapshot: %w", ended(p.ctx))
	}
	// A write that failed because the answer came first says nothing.
	if _, ok := errors.AsType[*remoteError](said); err == nil || ok || isClosed(err) {
		return said
	}
	return err
}

// ended says why a peer's context has ended.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, errRemoved) {
		return err
	}
	return errClosed
}

func (s *sending) write(p *peer, c net.Conn) error {
	w := &pacedWriter{ctx: p.ctx, conn: c, t: s.t, count: &p.counts.out[snapshots]}
	head, err := appendFrame(nil, s.m)
	if err != nil {
		return err
	}
	if _, err = w.Write(head); err != nil {
		return err
	}
	s.size = s.state.Size()
	if s.size < 0 {
		return fmt.Errorf("state of %d bytes is not possible", s.size)
	}
	chunks := newChunkWriter(w, s.size, s.t.chunkSize())
	if err := chunks.begin(); err != nil {
		return err
	}
	if _, err = s.state.WriteTo(chunks); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return chunks.end()
}

// chunkSize is the size of chunks: at a low rate small ones, so that the
// receiver sees something several times a second.
func (t *Transport) chunkSize() int {
	if r := t.cfg.SnapshotRate; r > 0 {
		return int(min(maxChunk, max(r/8, 1)))
	}
	return maxChunk
}

// pacedWriter writes to a connection at the transport's rate; each write may
// take a while, and no longer.
type pacedWriter struct {
	ctx   context.Context
	conn  net.Conn
	t     *Transport
	count *outCounts
}

// Write implements io.Writer.
func (w *pacedWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b
		if pace := w.t.pace; pace != nil {
			part = b[:min(len(b), pace.Burst())]
			if err := pace.WaitN(w.ctx, len(part)); err != nil {
				return n, err
			}
		}
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.t.limits.stall)); err != nil {
			return n, err
		}
		got, err := w.conn.Write(part)
		n, b = n+got, b[got:]
		w.count.sentBytes.Add(uint64(got))
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// remoteError is what the receiver has to say about a snapshot.
type remoteError struct{ text string }

func (e *remoteError) Error() string { return "the peer did not take the snapshot: " + e.text }

// awaitAnswer returns the receiver's verdict.
func awaitAnswer(c net.Conn, stall time.Duration) error {
	r := &patient{conn: c, limit: stall}
	for {
		p, err := readPacket(r, maxPayload)
		switch {
		case err != nil:
			return broken("await verdict on snapshot", err)
		case p.kind == answerWorking:
		case p.kind == answerOK:
			return nil
		default:
			var why Refusal
			if err := json.Unmarshal(p.payload, &why); err != nil {
				why.Text = "without readable words"
			}
			return &remoteError{text: why.Text}
		}
	}
}

// snapshot takes one snapshot and tells the sender what became of it.
func (in *inbound) snapshot() error {
	err := in.take()
	answer, verdict := byte(answerOK), any(nil)
	if err != nil {
		answer, verdict = answerRefused, &Refusal{Reason: ReasonOther, Text: shorten(err.Error())}
	}
	if e := in.conn.SetWriteDeadline(time.Now().Add(in.t.limits.handshake)); e == nil {
		if e = writePacket(in.conn, answer, verdict); e == nil {
			linger(in.conn)
		}
	}
	return err
}

// take reads the snapshot and hands it to the node.
func (in *inbound) take() error {
	r := bufio.NewReaderSize(&patient{conn: in.conn, limit: in.t.limits.stall}, readBuffer)
	m, n, err := (&frames{r: r}).next()
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	if m == nil {
		m = &raftpb.Message{}
	}
	if err := in.check(m); err != nil {
		return err
	}
	state, size, err := newChunkReader(r)
	if err != nil {
		return err
	}
	count := &in.counts.in[snapshots]
	count.receivedBytes.Add(uint64(n))
	err = in.working(func() error {
		return in.t.cfg.Handler.ReceiveSnapshot(m, size, state)
	})
	count.receivedBytes.Add(uint64(size - state.left))
	if err != nil {
		return fmt.Errorf("receive snapshot: %w", err)
	}
	if !state.finished() {
		return errNotRead
	}
	count.received.Add(1)
	return nil
}

// working runs f and tells the sender every while that it still does: making a
// state durable may take long.
func (in *inbound) working(f func() error) error {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(in.t.limits.working)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			// A sender that reads nothing is noticed where the state is read.
			if in.conn.SetWriteDeadline(time.Now().Add(in.t.limits.stall)) != nil ||
				writePacket(in.conn, answerWorking, nil) != nil {
				return
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	return f()
}

// shorten keeps a text within a packet, whatever its bytes become in JSON, and
// within a line of the log.
func shorten(s string) string {
	const limit = 1 << 10
	if len(s) > limit {
		return s[:limit] + " …"
	}
	return s
}

var errNotRead = errors.New("the state was not read to its end")

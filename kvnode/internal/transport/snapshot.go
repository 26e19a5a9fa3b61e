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

// SendSnapshot streams m and its state to m.To in the background and calls
// Handler.SnapshotSent with the result. While it runs, a second snapshot to the same
// peer fails. It closes state once written, before the peer has made it durable.
// After t.Close it only closes state.
func (t *Transport) SendSnapshot(m *raftpb.Message, state State) {
	if !t.spawn(func() { t.sendSnapshot(m, state) }) && state != nil {
		_ = state.Close() // the transport is closed: there is no handler for the error
	}
}

func (t *Transport) sendSnapshot(m *raftpb.Message, state State) {
	to, began := m.GetTo(), time.Now()
	log := t.cfg.Logger.With("peer", t.cfg.MemberName(to), "index", m.GetSnapshot().GetMetadata().GetIndex())
	s := &snapshotSender{t: t, m: m, state: state}
	err := s.run()
	if e := s.closeState(); e != nil && err == nil {
		log.Warn("cannot close the state of a snapshot", "error", e) // the peer has the state
	}
	if err != nil {
		t.totals.logLimit.Do(func() { log.Warn("snapshot was not sent", "error", err, "took", time.Since(began)) })
	} else {
		log.Info("snapshot was sent", "bytes", s.size, "took", time.Since(began))
	}
	t.cfg.Handler.SnapshotSent(to, err)
}

// snapshotSender sends one snapshot. One goroutine owns it.
type snapshotSender struct {
	t     *Transport
	m     *raftpb.Message
	state State
	size  int64
	once  sync.Once
}

// closeState closes the state once.
func (s *snapshotSender) closeState() (err error) {
	s.once.Do(func() {
		if s.state != nil {
			err = s.state.Close()
		}
	})
	return err
}

func (s *snapshotSender) run() error {
	p := s.t.peer(s.m.GetTo())
	switch {
	case s.state == nil:
		return errors.New("snapshot has no state: MsgSnap must go through SendSnapshot")
	case s.m.GetType() != raftpb.MsgSnap:
		return fmt.Errorf("%s is not a snapshot", s.m.GetType())
	case p == nil:
		return fmt.Errorf("member %s is not a peer", ID(s.m.GetTo()))
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
	if err = s.transfer(p, c); err != nil {
		p.counts.out[snapshots].lost.Add(1)
		return err
	}
	p.counts.out[snapshots].sent.Add(1)
	return nil
}

// connect tries each of the peer's addresses once.
func (s *snapshotSender) connect(p *peer) (net.Conn, error) {
	errs := []error{errors.New("no address of the peer answers")}
	for _, addr := range *p.addrs.Load() {
		c, _, err := s.t.dial(p.ctx, addr, p.id, snapshots)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// answerWait limits the wait for the receiver's answer after a failed write. If the receiver has sent one, it arrives
// at once.
const answerWait = 500 * time.Millisecond

// transfer sends the snapshot and waits for the answer. It closes c.
func (s *snapshotSender) transfer(p *peer, c net.Conn) error {
	stop := context.AfterFunc(p.ctx, func() { closeQuietly(c) })
	defer stop()
	answer := make(chan error, 1)
	go func() {
		err := awaitAnswer(c, s.t.limits.stall)
		if err != nil {
			closeQuietly(c) // ends a write under way
		}
		answer <- err
	}()
	err := s.write(p, c)
	if e := s.closeState(); e != nil && err == nil {
		err = fmt.Errorf("close state: %w", e)
	}
	if err != nil {
		// The receiver may have sent the reason before it closed the connection.
		timer := time.AfterFunc(answerWait, func() { closeQuietly(c) })
		defer timer.Stop()
	}
	result := <-answer
	closeQuietly(c)
	if p.ctx.Err() != nil {
		return fmt.Errorf("send snapshot: %w", closeReason(p.ctx))
	}
	// If the answer ended the write, the answer is the cause.
	if _, ok := errors.AsType[*remoteError](result); err == nil || ok || isClosed(err) {
		return result
	}
	return err
}

// closeReason returns the reason why a peer's context has ended.
func closeReason(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, errRemoved) {
		return err
	}
	return errClosed
}

func (s *snapshotSender) write(p *peer, c net.Conn) error {
	w := &snapshotWriter{conn: c, stall: s.t.limits.stall, count: &p.counts.out[snapshots]}
	head, err := appendFrame(nil, s.m)
	if err != nil {
		return err
	}
	if _, err = w.Write(head); err != nil {
		return err
	}
	s.size = s.state.Size()
	if s.size < 0 {
		return fmt.Errorf("size %d of the state must not be negative", s.size)
	}
	chunks := newChunkWriter(w, s.size)
	if err := chunks.begin(); err != nil {
		return err
	}
	if _, err = s.state.WriteTo(chunks); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return chunks.end()
}

// snapshotWriter writes to a connection and counts the bytes. Each write fails after stall.
type snapshotWriter struct {
	conn  net.Conn
	stall time.Duration
	count *outCounts
}

// Write implements io.Writer.
func (w *snapshotWriter) Write(b []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(w.stall)); err != nil {
		return 0, err
	}
	n, err := w.conn.Write(b)
	w.count.sentBytes.Add(uint64(n))
	return n, err
}

// remoteError is the receiver's error for a snapshot.
type remoteError struct{ text string }

func (e *remoteError) Error() string { return "the peer rejected the snapshot: " + e.text }

// awaitAnswer returns the receiver's answer.
func awaitAnswer(c net.Conn, stall time.Duration) error {
	r := &timeoutReader{conn: c, limit: stall}
	for {
		p, err := readPacket(r, maxPayload)
		switch {
		case err != nil:
			return broken("wait for the answer to the snapshot", err)
		case p.kind == answerWorking:
		case p.kind == answerOK:
			return nil
		default:
			var why Refusal
			if err := json.Unmarshal(p.payload, &why); err != nil {
				why.Text = "the answer does not decode"
			}
			return &remoteError{text: why.Text}
		}
	}
}

// receiveSnapshot reads one snapshot and sends the result to the sender.
func (in *inbound) receiveSnapshot() error {
	err := in.readSnapshot()
	answer, payload := byte(answerOK), any(nil)
	if err != nil {
		answer, payload = answerRefused, &Refusal{Reason: ReasonOther, Text: shorten(err.Error())}
	}
	if in.conn.SetWriteDeadline(time.Now().Add(in.t.limits.handshake)) == nil {
		in.sendLast(answer, payload)
	}
	return err
}

// readSnapshot reads the snapshot and passes it to the node.
func (in *inbound) readSnapshot() error {
	r := bufio.NewReaderSize(&timeoutReader{conn: in.conn, limit: in.t.limits.stall}, readBuffer)
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
	err = in.reportProgress(func() error {
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

// reportProgress runs f, and sends answerWorking at intervals meanwhile: making a state durable may take longer than
// the sender waits for progress.
func (in *inbound) reportProgress(f func() error) error {
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
			// After an error here, reading the state fails as well.
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

// shorten limits the length of a text for a packet and for a log line. In JSON a
// byte may become six.
func shorten(s string) string {
	const limit = 1 << 10
	if len(s) > limit {
		return s[:limit] + " …"
	}
	return s
}

var errNotRead = errors.New("the state was not read to its end")

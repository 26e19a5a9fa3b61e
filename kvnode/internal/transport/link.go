package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/time/rate"
)

// link is one stream to one peer: it connects for as long as the peer exists,
// and writes what is queued. See write.go.
type link struct {
	t     *Transport
	peer  *peer
	kind  stream
	lim   streamLimits
	queue *queue
	wake  chan struct{} // a token ends the wait for the next attempt
	log   *slog.Logger
	// came and went limit what is logged of connections.
	came, went rate.Sometimes

	mu struct {
		sync.Mutex
		state linkState
		quiet time.Time // failures before it are not logged
	}
}

// linkState is what operators see of a link.
type linkState struct {
	connected bool
	since     time.Time // of connected
	lastErr   string
	hello     Hello
	rtt       time.Duration
}

func newLink(p *peer, kind stream, hold time.Duration) *link {
	l := &link{
		t: p.t, peer: p, kind: kind,
		lim:   p.t.limits.streams[kind],
		queue: newQueue(p.t.limits.streams[kind], hold),
		wake:  make(chan struct{}, 1),
		log:   p.t.cfg.Logger.With("peer", p.t.cfg.Called(p.id), "stream", kind.String()),
		came:  seldom(), went: seldom(),
	}
	l.mu.state.since = time.Now()
	return l
}

func (l *link) send(m *raftpb.Message) { l.lose(l.queue.add(m)) }

// lose counts n messages as lost and has the node told.
func (l *link) lose(n int) {
	if n > 0 {
		l.peer.counts.out[l.kind].lost.Add(uint64(n))
		l.peer.lost()
	}
}

// hurry ends the wait for the next attempt: there is reason to believe that it
// will succeed.
func (l *link) hurry() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run connects again and again until the peer is removed.
func (l *link) run() {
	ctx := l.peer.ctx
	defer func() { l.lose(l.queue.shut()) }()
	wait, turn, held := time.Duration(0), 0, 0
	for ctx.Err() == nil {
		began := time.Now()
		err := l.once(ctx, turn, turn != held)
		if ctx.Err() != nil {
			return
		}
		lim := &l.t.limits
		low, high, wake := lim.retryMin, lim.retryMax, l.wake
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			// That the peer dials this member does not mean that it has changed
			// its mind.
			low, high, wake = lim.refusedMin, lim.refusedMax, nil
			if refused.Reason == ReasonUnknown {
				high = lim.retryMax // most likely it soon applies that this member was added
			}
		}
		switch {
		case errors.Is(err, errCalled):
			wait, turn = 0, held
		case time.Since(began) > lim.retryMax && l.was(began):
			wait, held = 0, turn
		default:
			turn = (turn + 1) % max(1, len(*l.peer.addrs.Load()))
		}
		wait = min(max(2*wait, low), high)
		if !sleep(ctx, jittered(wait, rand.Float64()), wake) {
			return
		}
	}
}

// was reports whether the link has been connected since a moment.
func (l *link) was(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state.since.After(since)
}

// once connects to the address whose turn it is, and returns when the connection
// has ended, or could not be made.
func (l *link) once(ctx context.Context, turn int, doubtful bool) error {
	addrs := *l.peer.addrs.Load()
	if len(addrs) == 0 {
		err := errors.New("no address is known")
		l.failed(err)
		return err
	}
	addr := addrs[turn%len(addrs)]
	began := time.Now()
	c, h, err := l.dial(ctx, addr, doubtful)
	if errors.Is(err, errCalled) {
		return err
	}
	if err != nil {
		l.failed(err)
		return err
	}
	l.connected(h, addr, time.Since(began))
	err = l.serve(ctx, c)
	l.lose(l.queue.shut())
	l.disconnected(err)
	return err
}

// errCalled ends an attempt to connect to a doubtful address: another one than that of the last connection that held,
// or, if there was none, the first one. The peer has called meanwhile, so most likely it is there. A host that is gone
// may not answer until the attempt ends by itself.
var errCalled = errors.New("the peer has called")

// dial connects to an address. If that is doubtful it ends with errCalled when the peer calls.
func (l *link) dial(ctx context.Context, addr string, doubtful bool) (net.Conn, Hello, error) {
	if !doubtful {
		return l.t.dial(ctx, addr, l.peer.id, l.kind)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() {
		select {
		case <-l.wake:
			cancel(errCalled)
		case <-ctx.Done():
		}
	})
	c, h, err := l.t.dial(ctx, addr, l.peer.id, l.kind)
	if err != nil && errors.Is(context.Cause(ctx), errCalled) {
		err = errCalled
	}
	return c, h, err
}

func (l *link) connected(h Hello, addr string, rtt time.Duration) {
	l.mu.Lock()
	l.mu.state = linkState{connected: true, since: time.Now(), hello: h, rtt: rtt}
	l.mu.quiet = time.Time{}
	l.mu.Unlock()
	l.peer.counts.out[l.kind].connects.Add(1)
	l.came.Do(func() { l.log.Info("connected to peer", "addr", addr, "name", h.Name) })
	l.lose(l.queue.open())
	if l.kind == control {
		l.t.cfg.Handler.Connected(l.peer.id, h)
	}
}

func (l *link) disconnected(err error) {
	l.mu.Lock()
	l.mu.state.connected, l.mu.state.since = false, time.Now()
	l.mu.state.lastErr = err.Error()
	l.mu.Unlock()
	// What was written last may be lost as well, which nobody can count.
	l.peer.lost()
	if l.peer.ctx.Err() == nil {
		l.went.Do(func() { l.log.Warn("lost connection to peer", "error", err) })
	}
}

// failed notes that an attempt has failed. The first is logged, and one every
// half minute.
func (l *link) failed(err error) {
	if l.peer.ctx.Err() != nil {
		return
	}
	now := time.Now()
	l.mu.Lock()
	l.mu.state.lastErr = err.Error()
	loud := !now.Before(l.mu.quiet)
	if loud {
		l.mu.quiet = now.Add(30 * time.Second)
	}
	l.mu.Unlock()
	if loud {
		l.log.Warn("cannot connect to peer", "error", err)
	}
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok {
		return
	}
	l.peer.counts.refused(refused.Reason)
	if l.kind == control {
		l.t.cfg.Handler.Refused(l.peer.id, refused)
	}
}

// roundTrip notes how long the peer took to answer.
func (l *link) roundTrip(d time.Duration) {
	if l.kind == control { // on the other, a ping may wait behind what is large
		l.peer.counts.roundTrips.Note(d)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.state.rtt = d
}

func closeQuietly(c net.Conn) { _ = c.Close() }

// dial connects to peer id at addr and shakes hands. What it returns has no
// deadline set.
func (t *Transport) dial(ctx context.Context, addr string, id uint64, kind stream) (net.Conn, Hello, error) {
	dialCtx, cancel := context.WithTimeout(ctx, t.limits.dial)
	defer cancel()
	c, err := t.cfg.Dial(dialCtx, addr)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("dial %s: %w", addr, err)
	}
	noDelay(c)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	h, err := t.greet(c, id, kind)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.Close()
		if _, ok := errors.AsType[*RefusedError](err); ok {
			return nil, Hello{}, err
		}
		return nil, Hello{}, fmt.Errorf("shake hands with %s: %w", addr, err)
	}
	return c, h, nil
}

// hello is what this member says to another as of now.
func (t *Transport) hello(to uint64) Hello {
	h := t.cfg.Hello
	h.To, h.Hold = to, t.cfg.Hold()
	return h
}

// greet does the dialler's half of the handshake.
func (t *Transport) greet(c net.Conn, id uint64, kind stream) (Hello, error) {
	if err := c.SetDeadline(time.Now().Add(t.limits.handshake)); err != nil {
		return Hello{}, err
	}
	if err := writePacket(c, byte(kind)+1, t.hello(id)); err != nil {
		return Hello{}, broken("send hello", err)
	}
	p, err := readPacket(c, maxPayload)
	if err != nil {
		return Hello{}, broken("await hello", err)
	}
	answer, err := t.answered(c, p, id)
	if err != nil {
		return Hello{}, err
	}
	return answer, c.SetDeadline(time.Time{})
}

// answered checks the acceptor's answer, and that c leads to that member. A
// refusal counts only if it comes from the member: it may end this one.
func (t *Transport) answered(c net.Conn, p packet, id uint64) (Hello, error) {
	if err := t.cfg.Authenticate(c, Hello{ClusterID: t.cfg.Hello.ClusterID, From: id}); err != nil {
		return Hello{}, fmt.Errorf("this is not known to be member %s: %w", ID(id), err)
	}
	if p.kind == answerRefused {
		r := refusedBy(id, p.payload)
		return Hello{}, r
	}
	var h Hello
	if err := json.Unmarshal(p.payload, &h); err != nil {
		return Hello{}, fmt.Errorf("decode hello: %w", err)
	}
	switch {
	case p.version != version:
		return Hello{}, fmt.Errorf("peer speaks protocol version %d, want %d", p.version, version)
	case p.kind != answerOK:
		return Hello{}, fmt.Errorf("answer of kind %d, want %d", p.kind, answerOK)
	case h.ClusterID != t.cfg.Hello.ClusterID:
		return Hello{}, fmt.Errorf("member of cluster %s answers, want cluster %s", ID(h.ClusterID), ID(t.cfg.Hello.ClusterID))
	case h.From != id:
		return Hello{}, fmt.Errorf("member %s answers, want member %s", ID(h.From), ID(id))
	case h.To != t.self:
		return Hello{}, fmt.Errorf("answer is for member %s, this is %s", ID(h.To), ID(t.self))
	}
	return h, nil
}

// refusedBy decodes a refusal. What does not decode is a refusal all the same.
func refusedBy(id uint64, payload []byte) *RefusedError {
	var r Refusal
	if err := json.Unmarshal(payload, &r); err != nil {
		r.Text = "without readable words"
	}
	known := refusalOf(&r)
	return &RefusedError{Peer: id, Reason: known.Reason, Text: known.Text, Term: known.Term, Index: known.Index}
}

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

// link is one stream to one peer. It connects again and again while the peer
// exists, and writes queued messages (writer.go).
type link struct {
	t                         *Transport
	peer                      *peer
	kind                      stream
	lim                       streamLimits
	queue                     *queue
	wake                      chan struct{} // a token ends the wait for the next attempt: see retryNow
	log                       *slog.Logger
	connectLog, disconnectLog rate.Sometimes // limit the lines about connections

	mu struct {
		sync.Mutex
		state       linkState
		noLogBefore time.Time // failed attempts before it are not logged
	}
}

// linkState is the state of a link for Peers.
type linkState struct {
	connected bool
	since     time.Time // last change of connected
	lastErr   string
	hello     Hello
	rtt       time.Duration
}

func newLink(p *peer, kind stream, maxWait time.Duration) *link {
	l := &link{
		t: p.t, peer: p, kind: kind,
		lim:        p.t.limits.streams[kind],
		queue:      newQueue(p.t.limits.streams[kind], maxWait),
		wake:       make(chan struct{}, 1),
		log:        p.t.cfg.Logger.With("peer", p.t.cfg.MemberName(p.id), "stream", kind.String()),
		connectLog: newLogLimit(), disconnectLog: newLogLimit(),
	}
	l.mu.state.since = time.Now()
	return l
}

func (l *link) send(m *raftpb.Message) { l.countLost(l.queue.push(m)) }

// countLost counts n messages as lost and reports the loss to the node.
func (l *link) countLost(n int) {
	if n > 0 {
		l.peer.counts.out[l.kind].lost.Add(uint64(n))
		l.peer.signalLoss()
	}
}

// retryNow ends the wait for the next attempt, which is likely to succeed now. It also ends an attempt at an unproven
// address: see errPeerConnected.
func (l *link) retryNow() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run connects again and again until the peer is removed. It tries the peer's addresses in turn. If the peer
// connects to this member meanwhile, run returns to the address of the last stable connection (errPeerConnected).
func (l *link) run() {
	ctx := l.peer.ctx
	defer func() { l.countLost(l.queue.disconnect()) }()
	wait, addr, stable := time.Duration(0), 0, 0 // addr and stable are indexes of the peer's addresses
	for ctx.Err() == nil {
		began := time.Now()
		err := l.connectOnce(ctx, addr, addr != stable)
		if ctx.Err() != nil {
			return
		}
		lim := &l.t.limits
		low, high, wake := lim.retryMin, lim.retryMax, l.wake
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			// A connection from the peer does not mean that it accepts this member now.
			low, high, wake = lim.refusedMin, lim.refusedMax, nil
			if refused.Reason == ReasonUnknown {
				high = lim.retryMax // the peer is likely to apply the change that added this member soon
			}
		}
		switch {
		case errors.Is(err, errPeerConnected):
			wait, addr = 0, stable
		case time.Since(began) > lim.retryMax && l.connectedSince(began):
			wait, stable = 0, addr
		default:
			addr = (addr + 1) % max(1, len(*l.peer.addrs.Load()))
		}
		wait = min(max(2*wait, low), high)
		if !sleep(ctx, jittered(wait, rand.Float64()), wake) {
			return
		}
	}
}

// connectedSince reports whether the link was connected at some time after since.
func (l *link) connectedSince(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state.since.After(since)
}

// connectOnce connects to the address with index i, and returns when the
// connection or the attempt has ended.
func (l *link) connectOnce(ctx context.Context, i int, unproven bool) error {
	addrs := *l.peer.addrs.Load()
	if len(addrs) == 0 {
		err := errors.New("the peer has no address")
		l.failed(err)
		return err
	}
	addr := addrs[i%len(addrs)]
	began := time.Now()
	c, h, err := l.dial(ctx, addr, unproven)
	if errors.Is(err, errPeerConnected) {
		return err
	}
	if err != nil {
		l.failed(err)
		return err
	}
	l.connected(h, addr, time.Since(began))
	err = l.serve(ctx, c)
	l.countLost(l.queue.disconnect())
	l.disconnected(err)
	return err
}

// errPeerConnected ends an attempt to dial an unproven address, because the peer has just connected to this member
// (or its addresses have changed), and its stable address is likely to answer. The stable address is that of the
// last stable connection or, before the first one, the first address. All others are unproven.
var errPeerConnected = errors.New("the peer has connected to this member")

// dial connects to addr. If addr is unproven, a connection from the peer ends the
// attempt with errPeerConnected.
func (l *link) dial(ctx context.Context, addr string, unproven bool) (net.Conn, Hello, error) {
	if !unproven {
		return l.t.dial(ctx, addr, l.peer.id, l.kind)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() {
		select {
		case <-l.wake:
			cancel(errPeerConnected)
		case <-ctx.Done():
		}
	})
	c, h, err := l.t.dial(ctx, addr, l.peer.id, l.kind)
	if err != nil && errors.Is(context.Cause(ctx), errPeerConnected) {
		err = errPeerConnected
	}
	return c, h, err
}

func (l *link) connected(h Hello, addr string, rtt time.Duration) {
	l.mu.Lock()
	l.mu.state = linkState{connected: true, since: time.Now(), hello: h, rtt: rtt}
	l.mu.noLogBefore = time.Time{}
	l.mu.Unlock()
	l.peer.counts.out[l.kind].connects.Add(1)
	l.connectLog.Do(func() { l.log.Info("connected to peer", "addr", addr, "name", h.Name) })
	l.countLost(l.queue.connect())
	if l.kind == control {
		l.t.cfg.Handler.Connected(l.peer.id, h)
	}
}

func (l *link) disconnected(err error) {
	l.mu.Lock()
	l.mu.state.connected, l.mu.state.since = false, time.Now()
	l.mu.state.lastErr = err.Error()
	l.mu.Unlock()
	// Messages written last may be lost as well. Their number is not known.
	l.peer.signalLoss()
	if l.peer.ctx.Err() == nil {
		l.disconnectLog.Do(func() { l.log.Warn("lost connection to peer", "error", err) })
	}
}

// failed records a failed attempt. It logs the first one, then at most one each
// 30 seconds.
func (l *link) failed(err error) {
	if l.peer.ctx.Err() != nil {
		return
	}
	now := time.Now()
	l.mu.Lock()
	l.mu.state.lastErr = err.Error()
	shouldLog := !now.Before(l.mu.noLogBefore)
	if shouldLog {
		l.mu.noLogBefore = now.Add(30 * time.Second)
	}
	l.mu.Unlock()
	if shouldLog {
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

// roundTrip records the time between a ping and its pong.
func (l *link) roundTrip(d time.Duration) {
	if l.kind == control { // on the bulk stream a ping may wait behind large messages
		l.peer.counts.roundTrips.Note(d)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.state.rtt = d
}

func closeQuietly(c net.Conn) { _ = c.Close() }

// dial connects to peer id at addr and does the dialler's half of the handshake.
// The connection that it returns has no deadline.
func (t *Transport) dial(ctx context.Context, addr string, id uint64, kind stream) (net.Conn, Hello, error) {
	dialCtx, cancel := context.WithTimeout(ctx, t.limits.dial)
	defer cancel()
	c, err := t.cfg.Dial(dialCtx, addr)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("dial %s: %w", addr, err)
	}
	noDelay(c)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	h, err := t.exchangeHello(c, id, kind)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.Close()
		if _, ok := errors.AsType[*RefusedError](err); ok {
			return nil, Hello{}, err
		}
		return nil, Hello{}, fmt.Errorf("handshake with %s: %w", addr, err)
	}
	return c, h, nil
}

// hello returns this member's hello for another member.
func (t *Transport) hello(to uint64) Hello {
	h := t.cfg.Hello
	h.To, h.Hold = to, t.cfg.Hold()
	return h
}

// exchangeHello sends this member's hello and reads the answer.
func (t *Transport) exchangeHello(c net.Conn, id uint64, kind stream) (Hello, error) {
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
	answer, err := t.checkAnswer(c, p, id)
	if err != nil {
		return Hello{}, err
	}
	return answer, c.SetDeadline(time.Time{})
}

// checkAnswer authenticates the acceptor and checks its answer. It authenticates
// first, because a refusal may make this member stop. So a refusal counts only if
// it comes from member id.
func (t *Transport) checkAnswer(c net.Conn, p packet, id uint64) (Hello, error) {
	if err := t.cfg.Authenticate(c, Hello{ClusterID: t.cfg.Hello.ClusterID, From: id}); err != nil {
		return Hello{}, fmt.Errorf("the connection does not authenticate as member %s: %w", ID(id), err)
	}
	if p.kind == answerRefused {
		r := decodeRefusal(id, p.payload)
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

// decodeRefusal decodes a refusal. A payload that does not decode is a refusal,
// too.
func decodeRefusal(id uint64, payload []byte) *RefusedError {
	var r Refusal
	if err := json.Unmarshal(payload, &r); err != nil {
		r.Text = "the refusal does not decode"
	}
	known := refusalOf(&r)
	return &RefusedError{Peer: id, Reason: known.Reason, Text: known.Text, Term: known.Term, Index: known.Index}
}

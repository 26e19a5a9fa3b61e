package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/leaderlease/go/kvnode/internal/connlimit"
)

// errAsked ends a connection that has asked for the roster.
var errAsked = errors.New("the roster was all it wanted")

// slot is where a member's connection of one kind belongs.
type slot struct {
	from uint64
	kind stream
}

// inbound is a connection that a peer has made.
type inbound struct {
	slot
	t       *Transport
	conn    net.Conn
	pending *connlimit.Pending
	hello   Hello
	counts  *counts
	cancel  context.CancelFunc // closes conn
	// turn is shared by all connections of the slot. The goroutine that puts a token into it
	// may read: two readers would mix up the order of messages.
	turn chan struct{}
}

// accept serves the listener until the transport is closed.
func (t *Transport) accept() {
	wait := time.Duration(0)
	for {
		c, err := t.cfg.Listener.Accept()
		switch {
		case err == nil:
			wait = 0
			t.handle(c)
		case t.ctx.Err() != nil:
			return
		case isClosed(err):
			t.cfg.Logger.Error("listener was closed: no peer can connect any more", "error", err)
			return
		default: // most likely too many open files
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			t.totals.complain.Do(func() { t.cfg.Logger.Error("cannot accept connections", "error", err, "retry_in", wait) })
			if !sleep(t.ctx, wait, nil) {
				return
			}
		}
	}
}

// handle serves c in the background, unless the port has too many connections.
func (t *Transport) handle(c net.Conn) {
	n, ok := t.port.Admit(c)
	if ok && !t.spawn(func() { t.welcome(c, n) }) {
		closeQuietly(c)
	}
}

// welcome does the acceptor's half of the handshake and serves the stream.
func (t *Transport) welcome(c net.Conn, n *connlimit.Pending) {
	ctx, cancel := context.WithCancel(t.ctx)
	stop := context.AfterFunc(ctx, func() { closeQuietly(c) })
	defer func() {
		cancel()
		stop()
		closeQuietly(c)
		n.Release()
	}()
	noDelay(c)
	in := &inbound{t: t, conn: c, pending: n, cancel: cancel}
	if in.shake() != nil {
		return
	}
	defer t.leave(in)
	if !n.Authenticated() {
		return
	}
	t.notice(in)
	t.totals.came.Do(func() {
		t.cfg.Logger.Info("peer has connected", "peer", t.cfg.Called(in.from), "stream", in.kind.String())
	})
	t.hurry(in.from)
	select {
	case in.turn <- struct{}{}:
		err := in.serve()
		<-in.turn
		in.gone(ctx, err)
	case <-ctx.Done():
	}
}

// shake answers the peer's hello.
func (in *inbound) shake() error {
	t := in.t
	if err := in.conn.SetDeadline(time.Now().Add(t.limits.handshake)); err != nil {
		return err
	}
	if err := in.secure(); err != nil {
		return err
	}
	p, err := readPacket(in.conn, maxHello)
	if err != nil {
		t.totals.garbled.Add(1)
		t.cfg.Logger.Debug("no handshake", "remote", in.conn.RemoteAddr().String(), "error", err)
		return err
	}
	if asked, err := in.tell(p); asked {
		return errors.Join(errAsked, err)
	}
	if told, err := in.mourn(p); told {
		return errors.Join(errMourned, err)
	}
	if err := t.admit(in, p); err != nil {
		in.refuse(refusalOf(err))
		return err
	}
	if err = writePacket(in.conn, answerOK, t.hello(in.from)); err == nil {
		err = in.conn.SetDeadline(time.Time{})
	}
	if err != nil {
		t.leave(in)
	}
	return err
}

// secure shakes hands for TLS, if the connection speaks it. The other end may be
// anybody, so what is logged about it is limited.
func (in *inbound) secure() error {
	c, ok := in.conn.(interface {
		HandshakeContext(ctx context.Context) error
	})
	if !ok {
		return nil
	}
	// welcome closes the connection when the transport ends.
	err := c.HandshakeContext(context.Background())
	switch {
	case err == nil:
		in.pending.Progress()
	case in.pending.Closed(): // connlimit counts and logs evictions
	default:
		in.t.totals.garbled.Add(1)
		in.t.totals.complain.Do(func() {
			in.t.cfg.Logger.Warn("TLS handshake failed", "remote", in.conn.RemoteAddr().String(), "error", err)
		})
	}
	return err
}

// admit decides about a hello, and gives the connection its slot. Nothing but the
// hello itself is looked at before the certificate is: whoever shows another
// member's learns nothing, and leaves no trace with the handler.
func (t *Transport) admit(in *inbound, p packet) error {
	if r := t.identify(in, p); r != nil {
		return r
	}
	if r := t.authenticate(in); r != nil {
		return r
	}
	for {
		// RemovePeer closes the connections that it finds. One whose admission it
		// overtook is asked for again.
		removals := t.removals()
		if err := t.cfg.Handler.Admit(in.hello); err != nil {
			return err
		}
		if t.enter(in, removals) {
			return nil
		}
	}
}

// authenticate checks that the other end is who it says that it is.
func (t *Transport) authenticate(in *inbound) *Refusal {
	err := t.cfg.Authenticate(in.conn, in.hello)
	if r, ok := errors.AsType[*Refusal](err); ok || err == nil {
		return r
	}
	return refusal(ReasonCertificate, "this is not known to be member %s: %v", ID(in.from), err)
}

// identify checks the hello of a stream on its own.
func (t *Transport) identify(in *inbound, p packet) *Refusal {
	if p.version == version && (p.kind == 0 || p.kind > byte(numStreams)) {
		return refusal(ReasonVersion, "stream of kind %d is not known, want 1 to %d", p.kind, numStreams)
	}
	in.kind = stream(p.kind - 1)
	return t.recognise(in, p)
}

// recognise checks who says a hello, and to whom.
func (t *Transport) recognise(in *inbound, p packet) *Refusal {
	if p.version != version {
		return refusal(ReasonVersion, "protocol version %d is not spoken here, want %d", p.version, version)
	}
	h := &in.hello
	if err := json.Unmarshal(p.payload, h); err != nil {
		return refusal(ReasonOther, "decode hello: %v", err)
	}
	in.from = h.From
	if err := h.Validate(); err != nil {
		return refusal(ReasonOther, "hello: %v", err)
	}
	switch {
	case h.ClusterID != t.cfg.Hello.ClusterID:
		return refusal(ReasonCluster, "this is cluster %s, not %s", ID(t.cfg.Hello.ClusterID), ID(h.ClusterID))
	case h.To != t.self:
		return refusal(ReasonMember, "this is member %s, not %s", ID(t.self), ID(h.To))
	case h.From == t.self:
		return refusal(ReasonMember, "member ID %s is this member's own", ID(h.From))
	case reservedID(h.From):
		return refusal(ReasonMember, "member ID %s is reserved", ID(h.From))
	}
	return nil
}

func (t *Transport) removals() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.removals
}

// enter gives in its slot and closes the connection that had it: a peer that
// connects anew has lost the old one. It reports false if a peer was removed
// since removals was read.
func (t *Transport) enter(in *inbound, removals uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.removals != removals {
		return false
	}
	in.counts = t.countsOf(in.from)
	if before := t.mu.inbound[in.slot]; before != nil {
		before.cancel()
	}
	t.mu.inbound[in.slot] = in
	if t.mu.turns[in.slot] == nil {
		t.mu.turns[in.slot] = make(chan struct{}, 1)
	}
	in.turn = t.mu.turns[in.slot]
	return true
}

// leave frees in's slot unless another connection has taken it. Nothing is left of a slot that is free and that no
// goroutine reads: a peer may connect under any number of IDs.
func (t *Transport) leave(in *inbound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.inbound[in.slot] == in {
		delete(t.mu.inbound, in.slot)
	}
	if t.mu.inbound[in.slot] == nil && len(in.turn) == 0 && t.mu.turns[in.slot] == in.turn {
		delete(t.mu.turns, in.slot)
	}
}

// hurry connects back at once: whoever dials can most likely be dialled.
func (t *Transport) hurry(id uint64) {
	if p := t.peer(id); p != nil {
		for _, l := range p.links {
			l.hurry()
		}
	}
}

// refuse says why and closes. What the peer sends meanwhile is read and dropped,
// for TCP would reset the connection and the answer would be lost.
func (in *inbound) refuse(r *Refusal) {
	t := in.t
	t.totals.refusals[reasonIndex(r.Reason)].Add(1)
	t.totals.complain.Do(func() {
		t.cfg.Logger.Warn("peer refused", "peer", ID(in.hello.From), "name", shorten(in.hello.Name),
			"remote", in.conn.RemoteAddr().String(), "reason", r.Reason, "text", r.Text)
	})
	if err := writePacket(in.conn, answerRefused, r); err != nil {
		return
	}
	linger(in.conn)
}

// linger lets the other end read what was written last.
func linger(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite() // the peer sees the end a second later
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second)) // as above
	_, _ = io.CopyN(io.Discard, c, 1<<20)
}

// Reasons to refuse a member. A member that meets another one counts it as
// ReasonOther.
const (
	// ReasonCluster means that the two belong to different clusters.
	ReasonCluster = "cluster"
	// ReasonMember means that somebody else is at this address, or that the
	// member's ID is not one.
	ReasonMember = "member"
	// ReasonVersion means that the two have no protocol version in common.
	ReasonVersion = "version"
	// ReasonRemoved means that the member was removed from the cluster.
	ReasonRemoved = "removed"
	// ReasonWiped means that the member came back without its data.
	ReasonWiped = "wiped"
	// ReasonCertificate means that the certificate is not that of the member.
	ReasonCertificate = "certificate"
	// ReasonUnknown means that the member that refuses has the other one neither in its registry nor, by its
	// host, in its configuration.
	ReasonUnknown = "unknown"
	// ReasonOther is everything else.
	ReasonOther = "other"
)

var reasons = [...]string{ReasonCluster, ReasonMember, ReasonVersion, ReasonRemoved, ReasonWiped, ReasonCertificate, ReasonUnknown, ReasonOther}

// Refusal is an error with which Handler.Admit refuses a peer for a reason that
// the peer can act on.
type Refusal struct { //nolint:errname // both ends call it that; the peer's half is RefusedError
	Reason string // one of the Reason constants
	Text   string // for people
	// Term and Index say what a wiped member is known to have had: a hard state of at
	// least that term, a log that ends no earlier. 0 is a version that does not say, or
	// another directory.
	Term, Index uint64 `json:",omitempty"`
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

func refusal(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// refusalOf returns what to tell a peer that err keeps out.
func refusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok && slices.Contains(reasons[:], r.Reason) {
		return &Refusal{Reason: r.Reason, Text: err.Error(), Term: r.Term, Index: r.Index}
	}
	return &Refusal{Reason: ReasonOther, Text: err.Error()}
}

// RefusedError says that a peer does not want to hear from this member.
type RefusedError struct {
	Peer   uint64
	Reason string // one of the Reason constants
	Text   string // the peer's words
	// Term and Index are the Refusal's.
	Term, Index uint64
}

// Error names the peer, the reason and the peer's words.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("member %s refuses this one (%s): %s", ID(e.Peer), e.Reason, e.Text)
}

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

// slot identifies a stream from a peer. Each slot has at most one current connection.
type slot struct {
	from uint64
	kind stream
}

// inbound is a connection that a peer has dialled.
type inbound struct {
	slot
	t       *Transport
	conn    net.Conn
	pending *connlimit.Pending
	hello   Hello
	counts  *counts
	cancel  context.CancelFunc // closes conn
	// reading is a semaphore that all connections of the slot share. Only its holder reads, because two readers would
	// break the order of messages.
	reading chan struct{}
}

// accept serves the listener until the transport is closed.
func (t *Transport) accept() {
	wait := time.Duration(0)
	for {
		c, err := t.cfg.Listener.Accept()
		switch {
		case err == nil:
			wait = 0
			t.startConn(c)
		case t.ctx.Err() != nil:
			return
		case isClosed(err):
			t.cfg.Logger.Error("peer listener was closed: no peer can connect", "error", err)
			return
		default: // for example too many open files
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			t.totals.logLimit.Do(func() { t.cfg.Logger.Error("cannot accept connections", "error", err, "retry_in", wait) })
			if !sleep(t.ctx, wait, nil) {
				return
			}
		}
	}
}

// startConn serves c in the background, unless connLimit rejects it.
func (t *Transport) startConn(c net.Conn) {
	pending, ok := t.connLimit.Admit(c)
	if ok && !t.spawn(func() { t.serveConn(c, pending) }) {
		closeQuietly(c)
	}
}

// serveConn does the acceptor's half of the handshake and reads the stream.
func (t *Transport) serveConn(c net.Conn, pending *connlimit.Pending) {
	ctx, cancel := context.WithCancel(t.ctx)
	stop := context.AfterFunc(ctx, func() { closeQuietly(c) })
	defer func() {
		cancel()
		stop()
		closeQuietly(c)
		pending.Release()
	}()
	noDelay(c)
	in := &inbound{t: t, conn: c, pending: pending, cancel: cancel}
	if !in.handshake() {
		return
	}
	defer t.unregister(in)
	if !pending.Authenticated() {
		return
	}
	t.detectDuplicate(in)
	t.totals.connectLog.Do(func() {
		t.cfg.Logger.Info("peer has connected", "peer", t.cfg.MemberName(in.from), "stream", in.kind.String())
	})
	t.retryNow(in.from)
	select {
	case in.reading <- struct{}{}:
		err := in.readStream()
		<-in.reading
		in.reportGone(ctx, err)
	case <-ctx.Done():
	}
}

// handshake reads the peer's first packet and answers it. It reports whether a stream follows.
func (in *inbound) handshake() bool {
	t := in.t
	if in.conn.SetDeadline(time.Now().Add(t.limits.handshake)) != nil || !in.tlsHandshake() {
		return false
	}
	p, err := readPacket(in.conn, maxHello)
	switch {
	case err != nil:
		t.totals.garbled.Add(1)
		t.cfg.Logger.Debug("no handshake", "remote", in.conn.RemoteAddr().String(), "error", err)
		return false
	case p.version == version && p.kind == kindMemberList:
		in.answerMemberList()
		return false
	case p.version == version && p.kind == kindDeathNotice:
		in.handleDeathNotice(p)
		return false
	}
	if err := t.admit(in, p); err != nil {
		in.refuse(refusalOf(err))
		return false
	}
	if writePacket(in.conn, answerOK, t.hello(in.from)) != nil || in.conn.SetDeadline(time.Time{}) != nil {
		t.unregister(in)
		return false
	}
	return true
}

// tlsHandshake does the TLS handshake if the connection uses TLS. It returns false if that fails. Any program may be
// at the other end, so log lines about it are limited.
func (in *inbound) tlsHandshake() bool {
	c, ok := in.conn.(interface {
		HandshakeContext(ctx context.Context) error
	})
	if !ok {
		return true
	}
	// serveConn closes the connection when the transport ends.
	err := c.HandshakeContext(context.Background())
	switch {
	case err == nil:
		in.pending.Progress()
	case in.pending.Closed(): // evicted: connlimit counts and logs that
	default:
		in.t.totals.garbled.Add(1)
		in.t.totals.logLimit.Do(func() {
			in.t.cfg.Logger.Warn("TLS handshake failed", "remote", in.conn.RemoteAddr().String(), "error", err)
		})
	}
	return err == nil
}

// admit checks a hello and registers the connection. It checks the certificate before it calls the handler, so a
// peer with another member's certificate changes no state.
func (t *Transport) admit(in *inbound, p packet) error {
	if r := t.checkStreamHello(in, p); r != nil {
		return r
	}
	if r := t.authenticate(in); r != nil {
		return r
	}
	for {
		// RemovePeer closes registered connections only. If it ran during Admit,
		// Admit must decide again.
		removals := t.removals()
		if err := t.cfg.Handler.Admit(in.hello); err != nil {
			return err
		}
		if t.register(in, removals) {
			return nil
		}
	}
}

// authenticate checks that the other end is the member that its hello names.
func (t *Transport) authenticate(in *inbound) *Refusal {
	err := t.cfg.Authenticate(in.conn, in.hello)
	if r, ok := errors.AsType[*Refusal](err); ok || err == nil {
		return r
	}
	return refusal(ReasonCertificate, "the connection does not authenticate as member %s: %v", ID(in.from), err)
}

// checkStreamHello checks the first packet of a stream by itself, before the handler is asked.
func (t *Transport) checkStreamHello(in *inbound, p packet) *Refusal {
	if p.version == version && (p.kind == 0 || p.kind > byte(numStreams)) {
		return refusal(ReasonVersion, "stream of kind %d is not known, want 1 to %d", p.kind, numStreams)
	}
	in.kind = stream(p.kind - 1)
	return t.checkHello(in, p)
}

// checkHello decodes a hello, and checks the cluster, the sender and the receiver.
func (t *Transport) checkHello(in *inbound, p packet) *Refusal {
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

// register makes this connection the current one of its slot, and closes the previous connection, which the peer has
// lost. It returns false if RemovePeer was called since removals was read.
func (t *Transport) register(in *inbound, removals uint64) bool {
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
	if t.mu.reading[in.slot] == nil {
		t.mu.reading[in.slot] = make(chan struct{}, 1)
	}
	in.reading = t.mu.reading[in.slot]
	return true
}

// unregister frees the slot unless a newer connection has it. Peers may connect with any number of IDs, so
// unregister also deletes the semaphore of a free slot without a reader, and the processes of an unknown member
// without a connection.
func (t *Transport) unregister(in *inbound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.inbound[in.slot] == in {
		delete(t.mu.inbound, in.slot)
	}
	if t.mu.inbound[in.slot] == nil && len(in.reading) == 0 && t.mu.reading[in.slot] == in.reading {
		delete(t.mu.reading, in.slot)
	}
	if t.peer(in.from) == nil && !t.hasInboundLocked(in.from) {
		delete(t.mu.processes, in.from)
	}
}

// retryNow makes the links to a peer dial at once. A peer that has just dialled is
// likely to accept connections.
func (t *Transport) retryNow(id uint64) {
	if p := t.peer(id); p != nil {
		for _, l := range p.links {
			l.retryNow()
		}
	}
}

// refuse sends the reason to the peer.
func (in *inbound) refuse(r *Refusal) {
	t := in.t
	t.totals.refusals[reasonIndex(r.Reason)].Add(1)
	t.totals.logLimit.Do(func() {
		t.cfg.Logger.Warn("peer refused", "peer", ID(in.hello.From), "name", shorten(in.hello.Name),
			"remote", in.conn.RemoteAddr().String(), "reason", r.Reason, "text", r.Text)
	})
	in.sendLast(answerRefused, r)
}

// sendLast sends the last packet of the connection. Then it drops bytes that the peer still sends, for a second at
// most: closing at once could reset the TCP connection, and the packet could be lost.
func (in *inbound) sendLast(kind byte, payload any) {
	if writePacket(in.conn, kind, payload) != nil {
		return
	}
	if w, ok := in.conn.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite() // after an error the peer sees the end a second later
	}
	_ = in.conn.SetReadDeadline(time.Now().Add(time.Second)) // after an error the read below fails
	_, _ = io.CopyN(io.Discard, in.conn, 1<<20)
}

// Reasons to refuse a member. A receiver counts a reason that it does not know as
// ReasonOther.
const (
	// ReasonCluster means that the members belong to different clusters.
	ReasonCluster = "cluster"
	// ReasonMember means that another member has this address, or that the sender's
	// ID is invalid.
	ReasonMember = "member"
	// ReasonVersion means that the members have no protocol version in common.
	ReasonVersion = "version"
	// ReasonRemoved means that the sender was removed from the cluster.
	ReasonRemoved = "removed"
	// ReasonLostData means that the sender has lost data: its directory is another one, or went back in time.
	ReasonLostData = "wiped"
	// ReasonCertificate means that the certificate is not valid for the sender.
	ReasonCertificate = "certificate"
	// ReasonUnknown means that the sender is not registered, and that its host is
	// neither a registered nor a configured one.
	ReasonUnknown = "unknown"
	// ReasonOther is any other reason.
	ReasonOther = "other"
)

var reasons = [...]string{ReasonCluster, ReasonMember, ReasonVersion, ReasonRemoved, ReasonLostData, ReasonCertificate, ReasonUnknown, ReasonOther}

// Refusal is an error of Handler.Admit with a reason that the peer can act on.
type Refusal struct { //nolint:errname // the peer's half is RefusedError
	Reason string // one of the Reason constants
	Text   string // for log lines
	// Term and Index are set with ReasonLostData if the peer's directory has lost
	// entries: its hard state had at least that term, and its log at least that
	// index. They are 0 if the directory is another one, and in refusals of former
	// versions.
	Term, Index uint64 `json:",omitempty"`
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

func refusal(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// refusalOf returns the refusal to send for err.
func refusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok && slices.Contains(reasons[:], r.Reason) {
		return &Refusal{Reason: r.Reason, Text: err.Error(), Term: r.Term, Index: r.Index}
	}
	return &Refusal{Reason: ReasonOther, Text: err.Error()}
}

// RefusedError is the Refusal of this member by a peer.
type RefusedError struct {
	Peer   uint64
	Reason string // one of the Reason constants
	Text   string // of the Refusal, as are Term and Index

	Term, Index uint64
}

// Error names the peer, the reason and the peer's text.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("member %s refuses this one (%s): %s", ID(e.Peer), e.Reason, e.Text)
}

package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

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

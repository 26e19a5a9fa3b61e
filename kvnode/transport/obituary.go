package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"
)

// kindObituary is the kind of a packet that says that a process of the sender's member is
// dead: its Hello, with the Process. It is no stream, so it takes no place of the member's
// own connections. Former versions refuse the kind.
const kindObituary = 201

// errMourned ends a connection that has brought an obituary.
var errMourned = errors.New("an obituary was all it brought")

// Will is what somebody must know who is to tell a member's peers that it has died.
type Will struct {
	Hello Hello       `json:"hello"`
	Peers []Addressee `json:"peers"`
}

// Addressee is a peer, and where it may be: host:port.
type Addressee struct {
	ID    uint64   `json:"id"`
	Addrs []string `json:"addrs"`
}

// Will returns the will as of now.
func (t *Transport) Will() Will {
	w, peers := Will{Hello: t.cfg.Hello}, *t.peers.Load()
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		w.Peers = append(w.Peers, Addressee{id, *peers[id].addrs.Load()})
	}
	return w
}

// Bury tells the member to at addr that the process named in h, of the member h is from, will
// never execute another instruction: whoever calls it has waited for its end. The error is a
// RefusedError if the member does not believe it, or runs a version that does not know what it is. It
// is bounded by ctx. dial is as in Ask.
func Bury(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr string, to uint64, h Hello) error {
	cfg := Config{Dial: dial}.WithDefaults()
	c, err := cfg.Dial(ctx, addr)
	if err != nil {
		return fmt.Errorf("dial %s: %w", addr, err)
	}
	defer closeQuietly(c)
	defer context.AfterFunc(ctx, func() { closeQuietly(c) })()
	noDelay(c)
	h.To, h.Hold = to, 0
	if err := writePacket(c, kindObituary, h); err != nil {
		return broken("say that the process has died", err)
	}
	switch p, err := readPacket(c, maxPayload); {
	case err != nil:
		return broken("await that it is believed", err)
	case p.kind == answerRefused:
		return refusedBy(to, p.payload)
	case p.kind != answerOK:
		return fmt.Errorf("answer of kind %d, want %d", p.kind, answerOK)
	}
	return nil
}

// mourn takes an obituary, and reports whether the packet was one. Who brings it must show what a member
// shows that connects: its child did.
func (in *inbound) mourn(p packet) (bool, error) {
	t := in.t
	if p.kind != kindObituary || p.version != version {
		return false, nil
	}
	if err := t.believe(in, p); err != nil {
		in.refuse(refusalOf(err))
		return true, err
	}
	t.countsOf(in.from).obituaries.Add(1)
	t.cfg.Handler.Died(in.from, in.hello.Process)
	if err := writePacket(in.conn, answerOK, nil); err != nil {
		return true, err
	}
	_ = in.conn.SetDeadline(time.Now().Add(time.Second)) // as in linger
	linger(in.conn)
	return true, nil
}

// believe reports why an obituary is not believed.
func (t *Transport) believe(in *inbound, p packet) error {
	if r := t.recognise(in, p); r != nil {
		return r
	}
	if in.hello.Process == 0 {
		return refusal(ReasonOther, "the obituary names no process")
	}
	if r := t.authenticate(in); r != nil {
		return r
	}
	return t.cfg.Handler.Admit(in.hello)
}

package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"
)

// kindObituary is the kind of a packet that carries a death notice: a process of the sender's member is dead. The
// packet opens a connection of its own and takes no stream's place. Versions that do not know the kind refuse it. Kind
// 201 is the notice of former versions. It proved nothing that a peer did not know while the process lived, so it is
// refused, too.
const kindObituary = 202

// obituary is the payload of a death notice.
type obituary struct {
	Hello         // of the dead process's member
	Secret Secret `json:"secret"`
}

// errMourned ends a connection that has brought a death notice.
var errMourned = errors.New("the connection was for a death notice only")

// Will is what a supervisor needs to tell a member's peers that the member's process has died.
type Will struct {
	Hello Hello       `json:"hello"`
	Peers []Addressee `json:"peers"`
}

// Addressee is a peer and its addresses, host:port.
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

// Bury tells member to at addr that the process with the given secret will never execute another instruction. h is the
// hello of that process's member. The caller has waited for the end of the process. The error is a RefusedError if the
// member rejects the notice or does not know its kind. ctx bounds the call. dial is as in Ask.
func Bury(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr string, to uint64, h Hello, secret Secret) error {
	cfg := Config{Dial: dial}.WithDefaults()
	c, err := cfg.Dial(ctx, addr)
	if err != nil {
		return fmt.Errorf("dial %s: %w", addr, err)
	}
	defer closeQuietly(c)
	defer context.AfterFunc(ctx, func() { closeQuietly(c) })()
	noDelay(c)
	h.To, h.Hold = to, 0
	if err := writePacket(c, kindObituary, obituary{h, secret}); err != nil {
		return broken("send the death notice", err)
	}
	switch p, err := readPacket(c, maxPayload); {
	case err != nil:
		return broken("await the answer to the death notice", err)
	case p.kind == answerRefused:
		return refusedBy(to, p.payload)
	case p.kind != answerOK:
		return fmt.Errorf("answer of kind %d, want %d", p.kind, answerOK)
	}
	return nil
}

// mourn handles a death notice, and reports whether the packet was one.
func (in *inbound) mourn(p packet) (bool, error) {
	t := in.t
	if p.kind != kindObituary || p.version != version {
		return false, nil
	}
	process, err := t.believe(in, p)
	if err != nil {
		in.refuse(refusalOf(err))
		return true, err
	}
	t.countsOf(in.from).obituaries.Add(1)
	t.cfg.Handler.Died(in.from, process)
	if err := writePacket(in.conn, answerOK, nil); err != nil {
		return true, err
	}
	_ = in.conn.SetDeadline(time.Now().Add(time.Second)) // as in linger
	linger(in.conn)
	return true, nil
}

// believe returns the process that a death notice is about, or why the notice is refused. The sender must show what the
// member itself shows when it connects. That alone proves no death: the handler compares the ID that the secret hashes
// to with the ID that the member's connections have named. The transport keeps no IDs: the connections of a process
// that has died are gone.
func (t *Transport) believe(in *inbound, p packet) (ProcessID, error) {
	if r := t.recognise(in, p); r != nil {
		return ProcessID{}, r
	}
	var o obituary
	if err := json.Unmarshal(p.payload, &o); err != nil {
		return ProcessID{}, refusal(ReasonOther, "decode death notice: %v", err)
	}
	if o.Secret == (Secret{}) {
		return ProcessID{}, refusal(ReasonOther, "the death notice has no secret")
	}
	if r := t.authenticate(in); r != nil {
		return ProcessID{}, r
	}
	return o.Secret.ProcessID(), t.cfg.Handler.Admit(in.hello)
}

package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// kindAsk is the kind of a packet that asks for the roster. It is no stream: the
// answer is all there is.
const kindAsk = 200

// Roster is what a member tells whoever asks, before that one is a member
// itself: what cluster this is, and who is in it, as the application encodes it.
type Roster struct {
	ClusterID uint64 `json:"cluster_id"`
	// From is who answers; 0 is a version that does not say.
	From    uint64          `json:"from,omitempty"`
	Members json.RawMessage `json:"members"`
	// Applied is an index as of which Members are at least; 0 is a version that does
	// not say.
	Applied uint64 `json:"applied,omitempty"`
}

// Ask asks the member at addr for its roster. dial is Config.Dial, nil for TCP.
// It is bounded by ctx, and by the time that a handshake may take.
func Ask(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr string) (Roster, error) {
	cfg := Config{Dial: dial}.WithDefaults()
	ctx, cancel := context.WithTimeout(ctx, defaultLimits().handshake)
	defer cancel()
	c, err := cfg.Dial(ctx, addr)
	if err != nil {
		return Roster{}, fmt.Errorf("dial %s: %w", addr, err)
	}
	defer closeQuietly(c)
	stop := context.AfterFunc(ctx, func() { closeQuietly(c) })
	defer stop()
	r, err := askOver(c)
	if err != nil {
		return Roster{}, fmt.Errorf("ask %s for its members: %w", addr, err)
	}
	return r, nil
}

func askOver(c net.Conn) (r Roster, err error) {
	if err := writePacket(c, kindAsk, nil); err != nil {
		return r, err
	}
	p, err := readPacket(c, maxPayload)
	if err != nil {
		return r, err
	}
	switch {
	case p.kind == answerRefused:
		return r, refusedBy(0, p.payload)
	case p.version != version:
		return r, fmt.Errorf("it speaks protocol version %d, want %d", p.version, version)
	case p.kind != answerOK:
		return r, fmt.Errorf("answer of kind %d, want %d", p.kind, answerOK)
	}
	err = json.Unmarshal(p.payload, &r)
	return r, err
}

// tell answers a packet that asks for the roster, and reports whether it was one.
func (in *inbound) tell(p packet) (bool, error) {
	if p.kind != kindAsk || p.version != version {
		return false, nil
	}
	roster := in.t.cfg.Roster
	if roster == nil {
		in.refuse(refusal(ReasonOther, "this member does not know the others yet"))
		return true, nil
	}
	r, err := roster()
	if err != nil {
		in.refuse(refusalOf(err))
		return true, err
	}
	if err := writePacket(in.conn, answerOK, r); err != nil {
		return true, err
	}
	_ = in.conn.SetDeadline(time.Now().Add(time.Second)) // as in linger
	linger(in.conn)
	return true, nil
}

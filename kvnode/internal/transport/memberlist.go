package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// kindMemberList is the kind of a packet that requests the member list. Its
// connection ends after the answer.
const kindMemberList = 200

// MemberList is the member list of a cluster. A program can request it before it is
// a member.
type MemberList struct {
	ClusterID uint64 `json:"cluster_id"`
	// From is the ID of the member that answers. Versions that do not know the
	// field send 0.
	From uint64 `json:"from,omitempty"`
	// Members are the registered members, which package membership encodes.
	Members json.RawMessage `json:"members"`
	// Applied is a log index that Members include. Versions that do not know the
	// field send 0.
	Applied uint64 `json:"applied,omitempty"`
}

// FetchMemberList requests the member list from the member at addr. dial is
// Config.Dial, nil for TCP. ctx and the limit of a handshake limit the call.
func FetchMemberList(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr string) (MemberList, error) {
	cfg := Config{Dial: dial}.WithDefaults()
	ctx, cancel := context.WithTimeout(ctx, defaultLimits().handshake)
	defer cancel()
	c, err := cfg.Dial(ctx, addr)
	if err != nil {
		return MemberList{}, fmt.Errorf("dial %s: %w", addr, err)
	}
	defer closeQuietly(c)
	stop := context.AfterFunc(ctx, func() { closeQuietly(c) })
	defer stop()
	r, err := requestMemberList(c)
	if err != nil {
		return MemberList{}, fmt.Errorf("request the member list of %s: %w", addr, err)
	}
	return r, nil
}

func requestMemberList(c net.Conn) (r MemberList, err error) {
	if err := writePacket(c, kindMemberList, nil); err != nil {
		return r, err
	}
	p, err := readPacket(c, maxPayload)
	if err != nil {
		return r, err
	}
	switch {
	case p.kind == answerRefused:
		return r, decodeRefusal(0, p.payload)
	case p.version != version:
		return r, fmt.Errorf("it speaks protocol version %d, want %d", p.version, version)
	case p.kind != answerOK:
		return r, fmt.Errorf("answer of kind %d, want %d", p.kind, answerOK)
	}
	err = json.Unmarshal(p.payload, &r)
	return r, err
}

// answerMemberList answers p if it requests the member list, and reports whether
// it does.
func (in *inbound) answerMemberList(p packet) (bool, error) {
	if p.kind != kindMemberList || p.version != version {
		return false, nil
	}
	list := in.t.cfg.MemberList
	if list == nil {
		in.refuse(refusal(ReasonOther, "this member has no member list yet"))
		return true, nil
	}
	r, err := list()
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

package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
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
	// Members reflect the log at least up to Applied. Versions that do not know the
	// field send 0.
	Applied uint64 `json:"applied,omitempty"`
}

// FetchMemberList requests the member list from the member at addr. dial is
// Config.Dial, nil for TCP. The call ends with ctx, or after limits.handshake.
func FetchMemberList(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr string) (MemberList, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultLimits().handshake)
	defer cancel()
	payload, err := request(ctx, dial, addr, 0, kindMemberList, nil)
	if err != nil {
		return MemberList{}, fmt.Errorf("request the member list of %s: %w", addr, err)
	}
	var list MemberList
	if err := json.Unmarshal(payload, &list); err != nil {
		return MemberList{}, fmt.Errorf("decode the member list of %s: %w", addr, err)
	}
	return list, nil
}

// request sends a packet to member to, at addr, on a new connection, and returns the payload of the answer. dial is
// Config.Dial, nil for TCP. The call ends with ctx.
func request(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr string, to uint64, kind byte, v any) ([]byte, error) {
	c, err := Config{Dial: dial}.WithDefaults().Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	defer closeQuietly(c)
	defer context.AfterFunc(ctx, func() { closeQuietly(c) })()
	noDelay(c)
	if err := writePacket(c, kind, v); err != nil {
		return nil, broken("send the request", err)
	}
	switch p, err := readPacket(c, maxPayload); {
	case err != nil:
		return nil, broken("wait for the answer", err)
	case p.kind == answerRefused:
		return nil, decodeRefusal(to, p.payload)
	case p.version != version:
		return nil, fmt.Errorf("peer speaks protocol version %d, want %d", p.version, version)
	case p.kind != answerOK:
		return nil, fmt.Errorf("answer of kind %d, want %d", p.kind, answerOK)
	default:
		return p.payload, nil
	}
}

// answerMemberList answers a request for the member list.
func (in *inbound) answerMemberList() {
	if in.t.cfg.MemberList == nil {
		in.refuse(refusal(ReasonOther, "this member has no member list yet"))
		return
	}
	list, err := in.t.cfg.MemberList()
	if err != nil {
		in.refuse(refusalOf(err))
		return
	}
	in.sendLast(answerOK, list)
}

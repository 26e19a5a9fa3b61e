package leaderlease

import (
	"fmt"
	"math"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/votes"
)

// fuzzed are the messages that a hostile peer sends to a leader and to a
// follower, all with the same unknown fields.
var fuzzed = []raftpb.MessageType{
	raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgVote, raftpb.MsgPreVote,
	raftpb.MsgTimeoutNow, raftpb.MsgReadIndex, raftpb.MsgApp,
}

// FuzzLeaseField: whatever bytes come as unknown fields, nothing panics, and
// only a well-formed probe, grant or release has an effect.
func FuzzLeaseField(f *testing.F) {
	f.Fuzz(func(t *testing.T, unknown []byte, forced bool) {
		for _, typ := range fuzzed {
			for _, leads := range []bool{true, false} {
				p := newPuppet(t)
				if leads {
					p.lead(2)
				} else {
					p.follow(2, 3)
				}
				p.fuzzOne(typ, unknown, forced)
				if err := p.sane(typ, leads); err != nil {
					t.Fatalf("after %v with unknown fields %x (leads: %v): %v", typ, unknown, leads, err)
				}
				p.Close()
			}
		}
	})
}

func (p *puppet) fuzzOne(typ raftpb.MessageType, unknown []byte, forced bool) {
	m := p.message(typ, 3, 1)
	if forced {
		m.Context = []byte(votes.CampaignTransfer)
	}
	m.ProtoReflect().SetUnknown(unknown)
	p.Incoming(m)
	p.renewalsAreEarned(m)
}

// renewalsAreEarned checks effects against an independent reading of the field.
func (p *puppet) renewalsAreEarned(m *raftpb.Message) {
	p.t.Helper()
	s := p.Stats()
	v, ok := wellFormed(m.ProtoReflect().GetUnknown())
	if s.Promises > 0 && (!ok || m.GetType() != raftpb.MsgHeartbeat || v.kind != kindProbe) {
		p.t.Fatalf("%v with %x made a promise", m.GetType(), m.ProtoReflect().GetUnknown())
	}
	if s.Renewals > 0 && (!ok || m.GetType() != raftpb.MsgHeartbeatResp || v.kind != kindGrant) {
		p.t.Fatalf("%v with %x renewed the lease", m.GetType(), m.ProtoReflect().GetUnknown())
	}
	if left := p.Info().Promise.Remaining; left > 900*ms {
		p.t.Fatalf("promise of %v, want at most MaxPromise, 900ms", left)
	}
}

// sane checks what must hold after any message at all.
func (p *puppet) sane(typ raftpb.MessageType, leads bool) error {
	s := p.Info()
	switch {
	case s.Remaining > usable:
		return fmt.Errorf("lease of %v, want at most %v", s.Remaining, usable)
	case !leads && s.Status == core.Valid:
		return fmt.Errorf("a follower holds a lease")
	case typ != raftpb.MsgHeartbeatResp && s.Status == core.Valid:
		return fmt.Errorf("a lease without a grant")
	default:
		return nil
	}
}

type reading struct {
	kind   byte
	values []uint64
}

// wellFormed reads a lease field the way the wire format is described, and
// shares no code with the one under test.
func wellFormed(unknown []byte) (r reading, ok bool) {
	found := 0
	var body []byte
	for len(unknown) > 0 {
		num, typ, raw, n := consumeField(unknown)
		if n <= 0 {
			return r, false
		}
		if num == 71370 {
			found++
			if typ != protowire.BytesType {
				return r, false
			}
			body, _ = protowire.ConsumeBytes(raw)
		}
		unknown = unknown[n:]
	}
	if found != 1 || len(body) < 2 || body[0] != 1 {
		return r, false
	}
	r.kind = body[1]
	for rest := body[2:]; len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 || v == 0 || v > math.MaxInt64 {
			return r, false
		}
		r.values = append(r.values, v)
		rest = rest[n:]
	}
	return r, len(r.values) == map[byte]int{1: 2, 2: 4, 3: 2}[r.kind] && len(r.values) > 0
}

func consumeField(b []byte) (num protowire.Number, typ protowire.Type, raw []byte, n int) {
	num, typ, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return 0, 0, nil, -1
	}
	size := protowire.ConsumeFieldValue(num, typ, b[tag:])
	if size < 0 {
		return 0, 0, nil, -1
	}
	return num, typ, b[tag : tag+size], tag + size
}

// FuzzIncomingMessage: whatever bytes a peer sends as a raft message, Incoming
// does not panic, and no lease comes of it unless a grant is in it.
func FuzzIncomingMessage(f *testing.F) {
	f.Fuzz(func(t *testing.T, wire []byte) {
		m := &raftpb.Message{}
		if proto.Unmarshal(wire, m) != nil {
			return
		}
		for _, leads := range []bool{true, false} {
			var sent int
			p := newPuppet(t, func(c *Config) { c.Send = func([]*raftpb.Message) { sent++ } })
			if leads {
				p.lead(2)
			} else {
				p.follow(2, 3)
			}
			before := proto.Clone(m)
			p.Incoming(m)
			if !proto.Equal(before, m) {
				t.Fatalf("Incoming() changed the message to %v", m)
			}
			p.renewalsAreEarned(m)
			if err := p.sane(m.GetType(), leads); err != nil {
				t.Fatalf("after %v: %v", m, err)
			}
			if sent > 0 {
				t.Fatalf("Incoming(%v) answered %d reads without a lease", m, sent)
			}
			p.Close()
		}
	})
}

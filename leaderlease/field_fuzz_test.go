package leaderlease

import (
	"fmt"
	"math"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease/core"
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
	for _, s := range []struct {
		about, data string
		flag        bool
	}{
		{"grant", "\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"grant for ever", "\xd2\xec\"\x18\x01\x02\x80\xc0\xe2\x85\xe3h\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x80\xc0\xe2\x85\xe3h\x01", false},
		{"grant from before the term", "\xd2\xec\"\x14\x01\x02\xff\xbf\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"grant from the future", "\xd2\xec\"\x14\x01\x02\x81\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed a value missing", "\xd2\xec\"\x0e\x01\x02\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed a value too many", "\xd2\xec\"\x15\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01\x01", false},
		{"malformed another kind", "\xd2\xec\"\x14\x01\x03\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed empty payload", "\xd2\xec\"\x00", false},
		{"malformed foreign version", "\xd2\xec\"\x14\x02\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed garbage after it", "\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01\x80", false},
		{"malformed garbage before it", "\xff\xff\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed kind 0", "\xd2\xec\"\x14\x01\x00\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed kind unknown", "\xd2\xec\"\x14\x01Ȁ\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed last value 0", "\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x00", false},
		{"malformed length beyond the end", "\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h", false},
		{"malformed negative value", "\xd2\xec\"\x18\x01\x02\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed no values", "\xd2\xec\"\x02\x01\x02", false},
		{"malformed repeated", "\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed repeated first bad", "\xd2\xec\"\x00\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed tag cut", "\x80", false},
		{"malformed too long", "\xd2\xec\">\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", false},
		{"malformed value 0", "\xd2\xec\"\x0f\x01\x02\x00\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed varint of 11 bytes", "\xd2\xec\"\r\x01\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", false},
		{"malformed varint without end", "\xd2\xec\"\x04\x01\x02\x80\x80", false},
		{"malformed version 0", "\xd2\xec\"\x14\x00\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed version alone", "\xd2\xec\"\x01\x01", false},
		{"malformed wire type varint", "\xd0\xec\"\x05\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01", false},
		{"malformed wire type varint only", "\xd0\xec\"\x05", false},
		{"probe", "\xd2\xec\"\r\x01\x01\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03", false},
		{"probe too long", "\xd2\xec\"\r\x01\x01\x80\xc0\xe2\x85\xe3h\xc0\xd6Э\x03", false},
		{"release", "\xd2\xec\"\t\x01\x03\x02\x80\xc0\xe2\x85\xe3h", false},
		{"release forced", "\xd2\xec\"\t\x01\x03\x01\x80\xc0\xe2\x85\xe3h", true},
	} {
		f.Add([]byte(s.data), s.flag)
	}
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
		m.Context = []byte(core.CampaignTransfer)
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
	for _, s := range []struct{ about, data string }{
		{"empty", ""},
		{"forced vote", "\b\x05\x10\x01\x18\x02 \x03b\x10CampaignTransfer\xd2\xec\"\t\x01\x03\x02\x80\xc0\xe2\x85\xe3h"},
		{"heartbeat", "\b\b\x10\x01\x18\x03 \x02\xd2\xec\"\r\x01\x01\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03"},
		{"heartbeat response", "\b\t\x10\x01\x18\x02 \x02\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01"},
		{"heartbeat response with context", "\b\t\x10\x01\x18\x02 \x02b\x03\x01\x02\x03\xd2\xec\"\x14\x01\x02\x80\xc0\xe2\x85\xe3h\x80ғ\xad\x03\x80\xc0\xe2\x85\xe3h\x01"},
		{"pre vote", "\b\x11\x10\x01\x18\x02 \x02"},
		{"read index", "\b\x0f\x10\x01\x18\x02 \x02:\x12\"\x100123456789abcdef"},
		{"read index from nobody", "\b\x0f"},
		{"storage append from a peer", "\b\x13\x10\x01\x18\x02 \x02r\b\b\x06\x10\x01\x18\x02 \x02"},
		{"timeout now", "\b\x0e\x10\x01\x18\x02 \x02\xd2\xec\"\t\x01\x03\x02\x80\xc0\xe2\x85\xe3h"},
		{"unknown type", "\b\xe7\a\x10\x01\x18\x02 \x02"},
	} {
		f.Add([]byte(s.data))
	}
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

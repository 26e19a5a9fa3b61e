package leaderlease

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leaderlease/go/leaderlease/core"
)

// Probes, grants, releases and answers ride on raft's messages as one unknown protobuf field. Raft ignores it, Marshal
// and Unmarshal keep it, and a node or codec that drops it costs only grants, transfers and followers' reads.
// Message.Context would not do: in heartbeats it is raft's own 8-byte read position. Other bytes there panic a
// leader, or confirm reads that no quorum has confirmed (raft's read_only.go).
//
//	field   71370, length-delimited, at most once in a message
//	byte 0  version (1)
//	byte 1  kind: 1 probe, 2 grant, 3 release, 4 answer, 5 answer by a round
//	then    uvarints, nothing after them:
//	  probe    sent, duration
//	  grant    sent, duration, reading, incarnation
//	  release  term, at
//	  answers  term
const (
	fieldNumber  protowire.Number = 71370
	fieldVersion byte             = 1

	kindProbe   byte = 1
	kindGrant   byte = 2
	kindRelease byte = 3
	kindAnswer  byte = 4
	kindRound   byte = 5

	// maxFieldLen bounds the payload: 2 bytes and 4 uvarints of 10 bytes.
	maxFieldLen = 42

	// fieldTag is the tag on the wire. fieldHead is the length of the tag and of the one length byte.
	fieldTag  = "\xd2\xec\x22"
	fieldHead = len(fieldTag) + 1
)

// errNoField means that the message has no lease field, which is usual for peers without the library.
var errNoField = errors.New("no lease field")

// attach adds the field to m in place, since raft does not read m again.
func attach(m *raftpb.Message, kind byte, values ...uint64) {
	var payload [maxFieldLen]byte
	b := append(payload[:0], fieldVersion, kind)
	for _, v := range values {
		b = protowire.AppendVarint(b, v)
	}
	r := m.ProtoReflect()
	known := r.GetUnknown()
	field := make([]byte, 0, len(known)+len(b)+5)
	field = append(field, known...)
	field = protowire.AppendTag(field, fieldNumber, protowire.BytesType)
	r.SetUnknown(protowire.AppendBytes(field, b))
}

func attachProbe(m *raftpb.Message, p core.Probe) {
	attach(m, kindProbe, uint64(p.Sent), uint64(p.Duration))
}

func attachGrant(m *raftpb.Message, g core.Grant) {
	attach(m, kindGrant, uint64(g.Sent), uint64(g.Duration), uint64(g.Reading), uint64(g.Incarnation))
}

func attachRelease(m *raftpb.Message, r core.Release) {
	attach(m, kindRelease, r.Term, uint64(r.At))
}

// attachAnswer attests a MsgReadIndexResp: see Lease.mayAnswerLocked. If the request asked for a round, the field
// confirms it.
func attachAnswer(m *raftpb.Message) {
	kind := kindAnswer
	if wantsRound(m) {
		kind = kindRound
	}
	attach(m, kind, m.GetTerm())
}

func probeOf(m *raftpb.Message) (core.Probe, error) {
	v, err := fieldOf(m, kindProbe, 2)
	return core.Probe{Sent: core.Instant(v[0]), Duration: time.Duration(v[1])}, err
}

func grantOf(m *raftpb.Message) (core.Grant, error) {
	v, err := fieldOf(m, kindGrant, 4)
	return core.Grant{
		Sent:        core.Instant(v[0]),
		Duration:    time.Duration(v[1]),
		Reading:     core.Instant(v[2]),
		Incarnation: core.Incarnation(v[3]),
	}, err
}

func releaseOf(m *raftpb.Message) (core.Release, error) {
	v, err := fieldOf(m, kindRelease, 2)
	return core.Release{Term: v[0], At: core.Instant(v[1])}, err
}

func answerOf(m *raftpb.Message) (byRound bool, err error) {
	if _, err := fieldOf(m, kindRound, 1); err == nil {
		return true, nil
	}
	_, err = fieldOf(m, kindAnswer, 1)
	return false, err
}

// fieldOf returns the n values of m's lease field, all positive as an int64. Any deviation is an error.
func fieldOf(m *raftpb.Message, kind byte, n int) (values [4]uint64, err error) {
	payload, err := payloadOf(m.ProtoReflect().GetUnknown())
	if err != nil {
		return values, err
	}
	switch {
	case len(payload) < 2:
		return values, fmt.Errorf("lease field of %d bytes, want at least 2", len(payload))
	case payload[0] != fieldVersion:
		return values, fmt.Errorf("lease field version %d, want %d", payload[0], fieldVersion)
	case payload[1] != kind:
		return values, fmt.Errorf("lease field kind %d, want %d", payload[1], kind)
	}
	rest := payload[2:]
	var got [4]uint64
	for i := range n {
		v, used := protowire.ConsumeVarint(rest)
		if used < 0 || v == 0 || v > uint64(core.Forever) {
			return values, fmt.Errorf("lease field value %d of kind %d is malformed", i, kind)
		}
		got[i], rest = v, rest[used:]
	}
	if len(rest) != 0 {
		return values, fmt.Errorf("lease field has %d bytes too many", len(rest))
	}
	return got, nil
}

// payloadOf finds the one lease field among the unknown fields.
func payloadOf(unknown []byte) (payload []byte, err error) {
	if len(unknown) == 0 {
		return nil, errNoField
	}
	// The usual case: only our field.
	if n := len(unknown) - fieldHead; n >= 0 && n <= maxFieldLen &&
		string(unknown[:fieldHead-1]) == fieldTag && unknown[fieldHead-1] == byte(n) {
		return unknown[fieldHead:], nil
	}
	for len(unknown) > 0 {
		num, typ, n := protowire.ConsumeTag(unknown)
		if n < 0 {
			return nil, fmt.Errorf("unknown fields: %w", protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(num, typ, unknown[n:])
		if size < 0 {
			return nil, fmt.Errorf("unknown field %d: %w", num, protowire.ParseError(size))
		}
		if num == fieldNumber {
			if typ != protowire.BytesType || payload != nil || size > maxFieldLen {
				return nil, fmt.Errorf("lease field of wire type %d, %d bytes, is repeated or malformed", typ, size)
			}
			payload, _ = protowire.ConsumeBytes(unknown[n:])
		}
		unknown = unknown[n+size:]
	}
	if payload == nil {
		return nil, errNoField
	}
	return payload, nil
}

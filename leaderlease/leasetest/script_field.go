package leasetest

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// leaseField is the unknown protobuf field that carries probes, grants and releases. It has
// a decoder of its own here, so that tests do not depend on the library's decoder.
const leaseField protowire.Number = 71370

// Field is the lease field of a message as a test sees it.
type Field struct {
	// Kind is "probe", "grant" or "release".
	Kind string
	// Values are the numbers on the wire: sent, duration (and reading, incarnation), or
	// term, at.
	Values []uint64
}

// FieldOf returns the lease field of m; ok is false if it carries none that can
// be read.
func FieldOf(m *raftpb.Message) (f Field, ok bool) {
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		size := -1
		if n > 0 {
			size = protowire.ConsumeFieldValue(num, typ, b[n:])
		}
		if size < 0 {
			return Field{}, false
		}
		if num == leaseField && typ == protowire.BytesType {
			payload, _ := protowire.ConsumeBytes(b[n:])
			return decodeField(payload)
		}
		b = b[n+size:]
	}
	return Field{}, false
}

func decodeField(payload []byte) (f Field, ok bool) {
	if len(payload) < 2 || payload[0] != 1 {
		return Field{}, false
	}
	switch payload[1] {
	case 1:
		f.Kind = "probe"
	case 2:
		f.Kind = "grant"
	case 3:
		f.Kind = "release"
	default:
		return Field{}, false
	}
	for rest := payload[2:]; len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return Field{}, false
		}
		f.Values = append(f.Values, v)
		rest = rest[n:]
	}
	return f, len(f.Values) >= 2
}

// StripField removes the lease field, as a codec that does not keep unknown
// fields does.
func StripField(m *raftpb.Message) { m.ProtoReflect().SetUnknown(nil) }

// String describes the field. Instants are shown as durations since the origin
// of the clock they were read from.
func (f Field) String() string {
	switch f.Kind {
	case "probe", "grant":
		return fmt.Sprintf("%s sent=%v for=%v", f.Kind, time.Duration(f.Values[0]), time.Duration(f.Values[1]))
	case "release":
		return fmt.Sprintf("release term=%d at=%v", f.Values[0], time.Duration(f.Values[1]))
	default:
		return "none"
	}
}

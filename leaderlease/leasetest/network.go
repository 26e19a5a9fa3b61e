package leasetest

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
)

// Network carries messages between nodes, and loses, delays and holds them as configured.
type Network struct {
	world *world
	// deliver hands a message to its receiver.
	deliver func(m *raftpb.Message, from leaderlease.ProcessID)
	cut     map[[2]uint64]bool
	held    []*raftpb.Message
	// from has the sending process of each held message, which its connection identifies.
	from map[*raftpb.Message]leaderlease.ProcessID

	// Hold keeps messages that match from being delivered until Release. Nil
	// holds nothing.
	Hold func(*raftpb.Message) bool
	// Plan decides what becomes of a message: one delivery after each of the
	// returned delays, none if it is lost. Nil means one delivery after 1 ms.
	Plan func(*raftpb.Message) []time.Duration
	// OnSend, if set, sees every message that a node sends.
	OnSend func(*raftpb.Message)
}

func newNetwork(w *world, deliver func(*raftpb.Message, leaderlease.ProcessID)) *Network {
	return &Network{world: w, deliver: deliver, cut: make(map[[2]uint64]bool), from: make(map[*raftpb.Message]leaderlease.ProcessID)}
}

func (n *Network) send(m *raftpb.Message, from leaderlease.ProcessID) {
	if n.OnSend != nil {
		n.OnSend(m)
	}
	if n.Hold != nil && n.Hold(m) {
		n.held, n.from[m] = append(n.held, m), from
		return
	}
	n.carry(m, from)
}

// carry puts m on the wire. Whether the line is cut is decided on arrival, so a
// cut also loses what was under way.
func (n *Network) carry(m *raftpb.Message, from leaderlease.ProcessID) {
	delays := []time.Duration{time.Millisecond}
	if n.Plan != nil {
		delays = n.Plan(m)
	}
	for i, d := range delays {
		c := m
		if i > 0 {
			// Raft may amend what it was given to forward.
			c = proto.CloneOf(m)
		}
		n.world.after(d, func() {
			if !n.cut[[2]uint64{c.GetFrom(), c.GetTo()}] {
				n.deliver(c, from)
			}
		})
	}
}

// Cut severs the line from a to b, in that direction only.
func (n *Network) Cut(a, b uint64) { n.cut[[2]uint64{a, b}] = true }

// Split severs all lines between the two sides.
func (n *Network) Split(a, b []uint64) {
	for _, x := range a {
		for _, y := range b {
			n.Cut(x, y)
			n.Cut(y, x)
		}
	}
}

// Heal restores every line.
func (n *Network) Heal() { clear(n.cut) }

// Mend restores the line from a to b, in that direction only: it undoes Cut.
func (n *Network) Mend(a, b uint64) { delete(n.cut, [2]uint64{a, b}) }

// Join restores the lines between a and b.
func (n *Network) Join(a, b uint64) {
	n.Mend(a, b)
	n.Mend(b, a)
}

// Held returns the messages that are held back, oldest first.
func (n *Network) Held() []*raftpb.Message { return slices.Clone(n.held) }

// Release sends the held messages that match, or all if match is nil, and
// reports how many there were.
func (n *Network) Release(match func(*raftpb.Message) bool) int {
	var kept []*raftpb.Message
	released := 0
	for _, m := range n.held {
		if match != nil && !match(m) {
			kept = append(kept, m)
			continue
		}
		released++
		n.carry(m, n.from[m])
		delete(n.from, m)
	}
	n.held = kept
	return released
}

// DropHeld forgets the held messages that match, or all if match is nil.
func (n *Network) DropHeld(match func(*raftpb.Message) bool) {
	n.held = slices.DeleteFunc(n.held, func(m *raftpb.Message) bool { return match == nil || match(m) })
}

// OfType matches messages of any of the given types.
func OfType(types ...raftpb.MessageType) func(*raftpb.Message) bool {
	return func(m *raftpb.Message) bool { return slices.Contains(types, m.GetType()) }
}

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

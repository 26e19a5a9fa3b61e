package linz

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is what an operation does to its key.
type Kind uint8

// The kinds of operation.
const (
	Get    Kind = iota // a linearizable read
	Put                // an unconditional write
	Delete             // removes the key and shows what it removed
	CAS                // writes if the key's mod revision is as expected, else reads
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case Get:
		return "get"
	case Put:
		return "put"
	case Delete:
		return "delete"
	case CAS:
		return "cas"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Outcome is the client's knowledge of the effect of an operation.
type Outcome uint8

// The outcomes, from the weakest.
const (
	Unknown Outcome = iota // it may take effect at any time after its call, or never
	Failed                 // it had no effect and never will
	OK                     // it was answered
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Failed:
		return "failed"
	case OK:
		return "ok"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Version is a value of a key and the revision that wrote it. The zero value
// means that there is no such key.
type Version struct {
	Value string
	Mod   int64
}

// String shows the version as value@revision.
func (v Version) String() string {
	if v.Mod == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s@%d", v.Value, v.Mod)
}

// Op is one operation of one client.
type Op struct {
	Client int
	Kind   Kind
	Key    string
	// Value is what Put and CAS write. It must be unique in the history.
	Value string
	// Expect is the mod revision that CAS compares with, 0 meaning no key.
	Expect int64

	// Note is shown with the operation, for example the member that answered it.
	Note string

	// Call and Return are readings of the recorder's clock. Return is valid only if
	// Outcome is OK.
	Call, Return time.Duration

	Outcome Outcome
	// The rest is set if Outcome is OK.

	// Revision is the store's, from the header of the answer.
	Revision int64
	// Swapped is set if a CAS wrote.
	Swapped bool
	// Seen is the version that Get found, that Delete removed, or that a CAS
	// that did not write found instead of Expect.
	Seen Version
}

// wrote reports whether the operation is known to have made a new revision.
func (o *Op) wrote() bool {
	if o.Outcome != OK {
		return false
	}
	switch o.Kind {
	case Put:
		return true
	case Delete:
		return o.Seen.Mod != 0
	case CAS:
		return o.Swapped
	case Get:
	}
	return false
}

// Version returns the key's version after a write, and the zero value after a deletion.
func (o *Op) Version() Version {
	if o.Kind == Delete {
		return Version{}
	}
	return Version{Value: o.Value, Mod: o.Revision}
}

// sees reports whether the answer shows what the key held before.
func (o *Op) sees() bool {
	return o.Outcome == OK && o.Kind != Put && (o.Kind != CAS || !o.Swapped)
}

// String shows the operation on one line.
func (o *Op) String() string {
	return fmt.Sprintf("client %d %s %s [%v, %s]: %s", o.Client, o.Kind, o.Key, o.Call, o.end(), o.describe())
}

func (o *Op) end() string {
	if o.Outcome != OK {
		return "?"
	}
	return o.Return.String()
}

// describe shows the request and its answer.
func (o *Op) describe() string {
	s := o.Kind.String()
	switch o.Kind {
	case Put:
		s += " " + o.Value
	case CAS:
		s += fmt.Sprintf(" @%d to %s", o.Expect, o.Value)
	case Get, Delete:
	}
	if o.Note != "" {
		s += " (" + o.Note + ")"
	}
	switch {
	case o.Outcome != OK:
		return fmt.Sprintf("%s -> %s", s, o.Outcome)
	case o.sees():
		return fmt.Sprintf("%s -> %s, revision %d", s, o.Seen, o.Revision)
	default:
		return fmt.Sprintf("%s -> revision %d", s, o.Revision)
	}
}

// register is the state of one key. The zero value is a key that was never written.
type register struct {
	// key is what the key holds.
	key Version
	// floor is the newest revision that the operations so far have shown. It
	// never decreases: a header that shows less comes from an older state.
	floor int64
}

// model is a register with revisions. Its operations are *Op, concluded.
var model = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		reg, isRegister := state.(register)
		op, isOp := input.(*Op)
		if !isRegister || !isOp {
			return false, state
		}
		next, ok := reg.step(op)
		return ok, next
	},
	Hash: func(state any) uint64 {
		reg, ok := state.(register)
		if !ok {
			return 0
		}
		return uint64(reg.floor)*0x9E3779B97F4A7C15 ^ uint64(reg.key.Mod)*0xC2B2AE3D27D4EB4F
	},
	DescribeOperation: func(input, _ any) string {
		if op, ok := input.(*Op); ok {
			return op.describe()
		}
		return "?"
	},
	DescribeState: func(state any) string {
		if reg, ok := state.(register); ok {
			return reg.key.String()
		}
		return "?"
	},
}

// step reports whether op may come next, and the state after it.
func (r register) step(op *Op) (register, bool) {
	if op.Outcome == Unknown {
		return r.maybeDeleted(), true // conclude leaves no other unknown operation
	}
	switch {
	case op.sees() && op.Seen != r.key:
		return r, false
	case op.Kind == CAS && op.Swapped != (r.key.Mod == op.Expect):
		return r, false
	case !op.wrote():
		r.floor = max(r.floor, op.Revision)
		return r, op.Revision >= r.floor
	case op.Revision <= r.floor:
		return r, false // the revision of a write is new to all clients
	}
	return register{key: op.Version(), floor: op.Revision}, true
}

// maybeDeleted is the state after a deletion of unknown revision.
func (r register) maybeDeleted() register {
	if r.key.Mod == 0 {
		return r
	}
	return register{floor: r.floor + 1}
}

package linz

import (
	"github.com/anishathalye/porcupine"
)

// register is the state of one key. The zero value is a key that never was.
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

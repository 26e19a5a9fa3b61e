package linz

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// never is the return of an operation that may take effect at any time.
const never = time.Duration(math.MaxInt64)

func byCall(a, b Op) int { return cmp.Compare(a.Call, b.Call) }

// sighting is the first operation that saw a value.
type sighting struct {
	mod int64
	at  time.Duration
}

// conclude returns the operations on one key that matter to their order: those
// that had no effect are left out, and unknown writes end when their value was
// first seen.
func conclude(ops []Op) []Op {
	seen := sightings(ops)
	concluded := make([]Op, 0, len(ops))
	for _, op := range ops {
		if concludeOne(&op, seen) {
			concluded = append(concluded, op)
		}
	}
	// Only then it is known which swaps of an unknown outcome found no key.
	gone := lastGone(concluded)
	concluded = slices.DeleteFunc(concluded, func(op Op) bool { return op.Outcome == Unknown && op.Call > gone })
	slices.SortStableFunc(concluded, byCall)
	return concluded
}

// sightings returns, by value, the first operation that saw it.
func sightings(ops []Op) map[string]sighting {
	seen := make(map[string]sighting)
	for i := range ops {
		op := &ops[i]
		if !op.sees() || op.Seen.Mod == 0 {
			continue
		}
		if s, ok := seen[op.Seen.Value]; !ok || op.Return < s.at {
			seen[op.Seen.Value] = sighting{op.Seen.Mod, op.Return}
		}
	}
	return seen
}

// lastGone returns the last return of an operation that found no key.
func lastGone(ops []Op) time.Duration {
	last := time.Duration(-1)
	for i := range ops {
		op := &ops[i]
		if op.sees() && op.Seen.Mod == 0 || op.Outcome == OK && op.Kind == CAS && op.Swapped && op.Expect == 0 {
			last = max(last, op.Return)
		}
	}
	return last
}

// concludeOne ends an unknown write at its first sighting and reports whether the
// operation may matter.
func concludeOne(op *Op, seen map[string]sighting) bool {
	switch {
	case op.Outcome == OK:
		return true
	case op.Outcome == Failed || op.Kind == Get:
		return false
	case op.Kind == Delete:
		op.Return = never
		return true
	}
	s, ok := seen[op.Value]
	if !ok {
		return false
	}
	// A value seen before it was written is a violation. The search must be told
	// so by a write that comes after the sighting, not by one that ends before
	// it begins.
	op.Outcome, op.Revision, op.Return = OK, s.mod, max(s.at, op.Call)
	op.Swapped = op.Kind == CAS
	return true
}

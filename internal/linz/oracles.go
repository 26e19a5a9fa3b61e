package linz

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Final is the state after the last operation, as a linearizable read shows it.
type Final struct {
	Revision int64
	Keys     map[string]Version // absent keys may be left out
}

// Acknowledged returns the writes that were acknowledged to a client: each must
// be found at its revision until that is compacted.
func Acknowledged(ops []Op) []Op {
	var acked []Op
	for i := range ops {
		if ops[i].wrote() {
			acked = append(acked, ops[i])
		}
	}
	return acked
}

// checkFinal finds keys that have lost their newest acknowledged write, although no later
// write can have replaced it.
func checkFinal(ops []Op, final Final, rep *Report) {
	newest := make(map[string]*Op)
	deleting := make(map[string]bool) // keys with unknown deletions
	for i := range ops {
		op := &ops[i]
		if old := newest[op.Key]; op.wrote() && (old == nil || op.Revision > old.Revision) {
			newest[op.Key] = op
		}
		if op.Kind == Delete && op.Outcome == Unknown {
			deleting[op.Key] = true
		}
	}
	for key, op := range newest {
		got := final.Keys[key]
		switch {
		case op.Revision > final.Revision:
			rep.addf("missing", key, "final revision is %d: %v", final.Revision, op)
		case got.Mod > op.Revision, got == op.Version():
			// Replaced by a later write, or there.
		case got.Mod == 0 && deleting[key]:
		default:
			rep.addf("missing", key, "finally holds %v: %v", got, op)
		}
	}
}

// withFinal appends a read of each key after everything else, so that the final
// state takes part in the search for an order.
func withFinal(ops []Op, final Final) []Op {
	all := append([]Op(nil), ops...)
	client, end := 0, ops[len(ops)-1].Call
	keys := make(map[string]bool)
	for i := range ops {
		client = max(client, ops[i].Client+1)
		keys[ops[i].Key] = true
		if ops[i].Outcome == OK {
			end = max(end, ops[i].Return)
		}
	}
	for key := range keys {
		all = append(all, Op{
			Client: client, Kind: Get, Key: key, Call: end + 1, Return: end + 2,
			Outcome: OK, Revision: final.Revision, Seen: final.Keys[key],
		})
	}
	return all
}

// checkSessions finds answers with a lower revision than an earlier answer
// to the same client.
func checkSessions(ops []Op, rep *Report) {
	last := make(map[int]*Op)
	for i := range ops {
		op := &ops[i]
		if op.Outcome != OK {
			continue
		}
		if prev := last[op.Client]; prev != nil && op.Revision < prev.Revision {
			rep.addf("session", op.Key, "revision went back from %d to %d: %v, then %v", prev.Revision, op.Revision, prev, op)
		}
		last[op.Client] = op
	}
}

// floors are the newest revisions that completed operations have shown.
type floors struct {
	revision *Op            // of the store
	key      map[string]*Op // of each key
}

// mod returns the newest revision of its own key that the answer proves.
func (o *Op) mod() int64 {
	if o.wrote() {
		return o.Revision
	}
	return o.Seen.Mod
}

func (f *floors) raise(op *Op) {
	if f.revision == nil || op.Revision > f.revision.Revision {
		f.revision = op
	}
	if k := f.key[op.Key]; k == nil || op.mod() > k.mod() {
		f.key[op.Key] = op
	}
}

func (f *floors) check(op *Op, rep *Report) {
	key, store := f.key[op.Key], f.revision
	switch {
	case op.Seen.Mod > op.Revision:
		rep.addf("floor", op.Key, "version %d is newer than the answer's revision %d: %v", op.Seen.Mod, op.Revision, op)
	case key != nil && op.Seen.Mod != 0 && op.Seen.Mod < key.mod():
		rep.addf("floor", op.Key, "stale: %v, after %v", op, key)
	case store != nil && op.Revision < store.Revision:
		rep.addf("floor", op.Key, "stale revision: %v, after %v", op, store)
	case store != nil && op.wrote() && op.Revision == store.Revision:
		rep.addf("floor", op.Key, "a write at a revision already seen: %v, after %v", op, store)
	}
}

// checkFloor finds answers that are older than an answer that completed before the request.
// It only sorts, so it can check histories that are too large for a search, and it compares
// across keys and clients.
func checkFloor(ops []Op, rep *Report) {
	var calls, returns []*Op
	for i := range ops {
		if ops[i].Outcome == OK {
			calls = append(calls, &ops[i])
			returns = append(returns, &ops[i])
		}
	}
	slices.SortStableFunc(calls, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortStableFunc(returns, func(a, b *Op) int { return cmp.Compare(a.Return, b.Return) })
	f := floors{key: make(map[string]*Op)}
	done := 0
	for _, op := range calls {
		// At equal instants the two overlap, and either may come first.
		for ; returns[done].Return < op.Call; done++ {
			f.raise(returns[done])
		}
		f.check(op, rep)
	}
}

// checkRevisions finds two writes at one revision, and two values of one
// revision of a key.
func checkRevisions(ops []Op, rep *Report) {
	writes := make(map[int64]*Op)
	type version struct {
		key string
		mod int64
	}
	values := make(map[version]string)
	agree := func(op *Op, v Version) {
		at := version{op.Key, v.Mod}
		if old, ok := values[at]; ok && old != v.Value {
			rep.addf("revision", op.Key, "revision %d holds %q and %q: %v", v.Mod, old, v.Value, op)
		}
		values[at] = v.Value
	}
	for i := range ops {
		op := &ops[i]
		if op.sees() && op.Seen.Mod != 0 {
			agree(op, op.Seen)
		}
		if !op.wrote() {
			continue
		}
		if other := writes[op.Revision]; other != nil {
			rep.addf("revision", op.Key, "two writes at revision %d: %v, and %v", op.Revision, other, op)
		}
		writes[op.Revision] = op
		if op.Kind != Delete {
			agree(op, op.Version())
		}
	}
}

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
	// After this pass it is known which swaps of unknown outcome found no key.
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

package linz

import (
	"cmp"
	"slices"
)

// checkSessions finds answers whose revision is below that of an earlier answer
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

// floors is the newest that completed operations have shown.
type floors struct {
	revision *Op            // of the store
	key      map[string]*Op // of each key
}

// mod is the newest revision of its own key that the answer proves.
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

// checkFloor finds answers older than what an operation showed that completed
// before they were asked for. The cost is that of sorting, so it can judge what
// is too large for a search, and it compares across keys and clients.
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

package store

import (
	"bytes"
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// count returns how many keys scan would visit. Those of the newest revisions are counted
// by place. For an older one, what was made and deleted since is taken back, unless that
// is more than the range has chains: then it looks at each of them.
func (w view) count(ctx context.Context, key, end []byte) (n int64, err error) {
	// What a transaction under way has written is in no count yet.
	if len(end) > 0 && w.rev <= w.st.revision.Load() {
		all, live, changed := w.st.index.count(key, bound(end))
		if w.st.history.size(w.rev+1, changed) <= all {
			return w.takeBack(ctx, int64(live), changed, key, bound(end))
		}
	}
	_, err = w.scan(ctx, key, end, func(*Version) bool {
		n++
		return true
	})
	return n, err
}

// takeBack turns a count as of revision changed into the view's.
func (w view) takeBack(ctx context.Context, n, changed int64, key, end []byte) (int64, error) {
	var err error
	steps := 0
	w.st.history.scan(w.rev+1, changed, func(v *Version) bool {
		if steps++; steps%chunk == 0 {
			err = ctx.Err()
		}
		switch {
		case !v.first() && !v.tombstone(): // there before and after
		case bytes.Compare(v.GetKey(), key) < 0 || len(end) > 0 && bytes.Compare(v.GetKey(), end) >= 0:
		case v.tombstone():
			n++
		default:
			n--
		}
		return err == nil
	})
	// Last, since what was forgotten before is missing above.
	if err == nil && w.compacted() {
		err = rpctypes.ErrGRPCCompacted
	}
	return n, err
}

package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// maxRetries limits how often a read of the newest revision restarts because a compaction overtook
// it. Without it, a transaction that names a compacted revision would restart for ever.
const maxRetries = 16

// Range answers a range request at one revision. The error is a rpctypes.ErrGRPC… value or ctx's.
func (s *Store) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return retryCompacted(s, r.GetRevision() <= 0, func(w view) (*pb.RangeResponse, error) { return w.rangeKeys(ctx, r) })
}

// Txn answers a transaction without writes at one revision. All branches must consist of ranges and
// nested transactions of the same kind. Other transactions need an entry in the log.
func (s *Store) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if !ReadOnly(r) {
		return nil, rpctypes.ErrGRPCNotCapable
	}
	return retryCompacted(s, true, func(w view) (*pb.TxnResponse, error) {
		return (&transaction{st: w.st, base: w.rev}).txnContext(ctx, r)
	})
}

// retryCompacted calls read with the newest view. If newest is set and a compaction overtakes the
// read, it retries. An explicit revision that was compacted is gone for good.
func retryCompacted[T any](s *Store, newest bool, read func(view) (T, error)) (T, error) {
	for n := 1; ; n++ {
		out, err := read(s.state.Load().view())
		if err != rpctypes.ErrGRPCCompacted || !newest || n == maxRetries { //nolint:errorlint // statuses compare by text otherwise
			return out, err
		}
	}
}

// rangeKeys answers r at the revision in r, or at the view's if r has none. The header has the
// view's revision.
func (w view) rangeKeys(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	at, err := w.at(r.GetRevision())
	if err != nil {
		return nil, err
	}
	if err := CheckSort(r); err != nil {
		return nil, err
	}
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: w.rev}, Kvs: []*mvccpb.KeyValue{}}
	if r.GetCountOnly() {
		resp.Count, err = at.count(ctx, r.GetKey(), r.GetRangeEnd())
		return resp, err
	}
	found, err := at.collect(ctx, r, resp)
	if err != nil {
		return nil, err
	}
	if needsSort(r) {
		sortVersions(r, found)
	}
	if limit := r.GetLimit(); limit > 0 && int64(len(found)) > limit {
		found, resp.More = found[:limit], true
	}
	resp.Kvs = messages(r, found)
	return resp, nil
}

// collect returns the versions for r in the order of keys. It may stop after one more than the
// limit, but always counts the whole range.
func (w view) collect(ctx context.Context, r *pb.RangeRequest, resp *pb.RangeResponse) (found []*Version, err error) {
	limit := r.GetLimit()
	early := limit > 0 && limitsEarly(r)
	whole, err := w.scan(ctx, r.GetKey(), r.GetRangeEnd(), func(v *Version) bool {
		resp.Count++
		// One more than the limit shows that there is more. Up to chunk further keys are
		// counted here, which is faster than counting in the index.
		if early && int64(len(found)) > limit {
			return resp.GetCount() < limit+chunk
		}
		if passes(r, v) {
			found = append(found, v)
		}
		return true
	})
	if err == nil && !whole {
		resp.Count, err = w.count(ctx, r.GetKey(), r.GetRangeEnd())
	}
	return found, err
}

// messages builds the messages of a response. With KeysOnly the TTL lease is left out as well,
// unless the range is sorted by value: etcd 3.7 takes the keys from its index, which has no leases.
func messages(r *pb.RangeRequest, found []*Version) []*mvccpb.KeyValue {
	kvs, room := make([]*mvccpb.KeyValue, len(found)), make([]mvccpb.KeyValue, len(found))
	for i, v := range found {
		kvs[i] = &room[i]
		v.Fill(kvs[i])
		if r.GetKeysOnly() {
			kvs[i].Value = nil
			if r.GetSortTarget() != pb.RangeRequest_VALUE {
				kvs[i].Lease = 0
			}
		}
	}
	return kvs
}

// at returns the view of an older revision. 0 or less means this one.
func (w view) at(rev int64) (view, error) {
	switch {
	case rev > w.rev:
		return view{}, rpctypes.ErrGRPCFutureRev
	case rev <= 0:
		rev = w.rev
	}
	older := view{w.st, rev}
	if older.compacted() {
		return view{}, rpctypes.ErrGRPCCompacted
	}
	return older, nil
}

// scan calls visit with the live versions from key up to end, in the order of keys, until visit
// returns false. whole is true if it never did. An empty end means key alone, and "\0" means all
// keys from key on.
func (w view) scan(ctx context.Context, key, end []byte, visit func(*Version) bool) (whole bool, err error) {
	if len(end) == 0 {
		v := w.find(key)
		whole = v == nil || visit(v)
	} else {
		whole, err = w.scanChains(ctx, key, bound(end), func(c *chain) bool {
			v := c.at(w.rev).live()
			return v == nil || visit(v)
		})
	}
	// Checked last, since versions that were freed during the scan are missing.
	if err == nil && w.compacted() {
		err = rpctypes.ErrGRPCCompacted
	}
	return whole, err
}

// bound converts the end of a range request to the end for index.next, where empty means no bound.
func bound(end []byte) []byte {
	if len(end) == 1 && end[0] == 0 {
		return nil
	}
	return end
}

// scanChains calls visit with the chains from key up to end until visit returns false. whole
// is true if it never did. It locks the index for one chunk at a time, and stops when ctx ends.
func (w view) scanChains(ctx context.Context, key, end []byte, visit func(*chain) bool) (whole bool, err error) {
	// Most ranges are short.
	buf := make([]*chain, 0, chunk/8)
	for after := false; ; after = true {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		buf = w.st.index.next(buf, key, end, after)
		for _, c := range buf {
			if !visit(c) {
				return false, nil
			}
		}
		if len(buf) < cap(buf) {
			return true, nil
		}
		key = buf[len(buf)-1].key
		if cap(buf) < chunk {
			buf = make([]*chain, 0, chunk)
		}
	}
}

func passes(r *pb.RangeRequest, v *Version) bool {
	return within(v.mod, r.GetMinModRevision(), r.GetMaxModRevision()) &&
		within(v.create, r.GetMinCreateRevision(), r.GetMaxCreateRevision())
}

// within reports whether low <= x <= high. A bound of 0 does not apply.
func within(x, low, high int64) bool {
	return (low == 0 || x >= low) && (high == 0 || x <= high)
}

// needsSort reports whether r asks for an order other than ascending keys. A sort target without an
// order means ascending, as in etcd.
func needsSort(r *pb.RangeRequest) bool {
	return r.GetSortTarget() != pb.RangeRequest_KEY || r.GetSortOrder() == pb.RangeRequest_DESCEND
}

// limitsEarly reports whether the limit applies before the sort: if there is no sort or, as in etcd, if
// there is a sort target without an order and no filter.
func limitsEarly(r *pb.RangeRequest) bool {
	return !needsSort(r) || r.GetSortOrder() == pb.RangeRequest_NONE && !filters(r)
}

func filters(r *pb.RangeRequest) bool {
	return r.GetMinModRevision() != 0 || r.GetMaxModRevision() != 0 || r.GetMinCreateRevision() != 0 || r.GetMaxCreateRevision() != 0
}

// CheckSort refuses the same sort options as etcd's API server.
func CheckSort(r *pb.RangeRequest) error {
	if pb.RangeRequest_SortOrder_name[int32(r.GetSortOrder())] == "" || pb.RangeRequest_SortTarget_name[int32(r.GetSortTarget())] == "" {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// sortVersions sorts stably, so equal elements stay in the order of keys.
func sortVersions(r *pb.RangeRequest, found []*Version) {
	var by func(a, b *Version) int
	switch r.GetSortTarget() {
	case pb.RangeRequest_VERSION:
		by = func(a, b *Version) int { return cmp.Compare(a.GetVersion(), b.GetVersion()) }
	case pb.RangeRequest_CREATE:
		by = func(a, b *Version) int { return cmp.Compare(a.GetCreateRevision(), b.GetCreateRevision()) }
	case pb.RangeRequest_MOD:
		by = func(a, b *Version) int { return cmp.Compare(a.GetModRevision(), b.GetModRevision()) }
	case pb.RangeRequest_VALUE:
		by = func(a, b *Version) int { return bytes.Compare(a.GetValue(), b.GetValue()) }
	default:
		by = func(a, b *Version) int { return bytes.Compare(a.GetKey(), b.GetKey()) }
	}
	if r.GetSortOrder() == pb.RangeRequest_DESCEND {
		slices.SortStableFunc(found, func(a, b *Version) int { return by(b, a) })
		return
	}
	slices.SortStableFunc(found, by)
}

// count returns how many keys scan would visit. It takes the number of live keys from the index,
// and for an older revision reverts the creations and deletions since then. It scans instead if there
// were more writes since then than the range has keys.
func (w view) count(ctx context.Context, key, end []byte) (n int64, err error) {
	// The index does not count the writes of a transaction that is being applied.
	if len(end) > 0 && w.rev <= w.st.revision.Load() {
		all, live, changed := w.st.index.count(key, bound(end))
		if w.st.history.size(w.rev+1, changed) <= all {
			return w.revertCount(ctx, int64(live), changed, key, bound(end))
		}
	}
	_, err = w.scan(ctx, key, end, func(*Version) bool {
		n++
		return true
	})
	return n, err
}

// revertCount turns n, the count at revision changed, into the count at the view's revision.
func (w view) revertCount(ctx context.Context, n, changed int64, key, end []byte) (int64, error) {
	var err error
	steps := 0
	w.st.history.scan(w.rev+1, changed, func(v *Version) bool {
		if steps++; steps%chunk == 0 {
			err = ctx.Err()
		}
		switch {
		case !v.first() && !v.tombstone(): // live before and after
		case bytes.Compare(v.GetKey(), key) < 0 || len(end) > 0 && bytes.Compare(v.GetKey(), end) >= 0:
		case v.tombstone():
			n++
		default:
			n--
		}
		return err == nil
	})
	// Checked last, since versions that were dropped during the scan are missing.
	if err == nil && w.compacted() {
		err = rpctypes.ErrGRPCCompacted
	}
	return n, err
}

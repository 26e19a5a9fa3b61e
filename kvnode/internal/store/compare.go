package store

import (
	"bytes"
	"cmp"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// holdAll reports whether all of cs hold.
func (w view) holdAll(ctx context.Context, cs []*pb.Compare) (bool, error) {
	for _, c := range cs {
		if ok, err := w.holds(ctx, c); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// holds reports whether c holds for each key in its range. Without any key it
// holds if it would for one that is all zero, and never for a value: nothing
// cannot be told from the empty value.
func (w view) holds(ctx context.Context, c *pb.Compare) (bool, error) {
	found, ok := false, true
	_, err := w.scan(ctx, c.GetKey(), c.GetRangeEnd(), func(v *Version) bool {
		found = true
		ok = compare(c, v)
		return ok
	})
	switch {
	case err != nil:
		return false, err
	case found:
		return ok, nil
	case c.GetTarget() == pb.Compare_VALUE:
		return false, nil
	default:
		return compare(c, nil), nil
	}
}

// compare reports whether c holds for v, nil being all zero. Like etcd it takes an operand of
// another type than the target's for zero, and what it does not know for true.
func compare(c *pb.Compare, v *Version) bool {
	var order int
	switch c.GetTarget() {
	case pb.Compare_VALUE:
		order = bytes.Compare(v.GetValue(), c.GetValue())
	case pb.Compare_CREATE:
		order = cmp.Compare(v.GetCreateRevision(), c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(v.GetModRevision(), c.GetModRevision())
	case pb.Compare_VERSION:
		order = cmp.Compare(v.GetVersion(), c.GetVersion())
	case pb.Compare_LEASE:
		order = cmp.Compare(v.GetTTLLease(), c.GetLease())
	}
	switch c.GetResult() {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	case pb.Compare_LESS:
		return order < 0
	default:
		return true
	}
}

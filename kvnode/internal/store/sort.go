package store

import (
	"bytes"
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// needsSort reports whether r asks for another order than that of keys. A sort
// target without an order means ascending, as in etcd.
func needsSort(r *pb.RangeRequest) bool {
	return r.GetSortTarget() != pb.RangeRequest_KEY || r.GetSortOrder() == pb.RangeRequest_DESCEND
}

// limitsEarly reports whether the limit picks among r's keys before they are
// sorted. So it does for a target without an order: that is how etcd answers.
func limitsEarly(r *pb.RangeRequest) bool {
	return !needsSort(r) || r.GetSortOrder() == pb.RangeRequest_NONE && !filters(r)
}

func filters(r *pb.RangeRequest) bool {
	return r.GetMinModRevision() != 0 || r.GetMaxModRevision() != 0 || r.GetMinCreateRevision() != 0 || r.GetMaxCreateRevision() != 0
}

// checkSort refuses what etcd's servers refuse before they propose it.
func checkSort(r *pb.RangeRequest) error {
	if pb.RangeRequest_SortOrder_name[int32(r.GetSortOrder())] == "" || pb.RangeRequest_SortTarget_name[int32(r.GetSortTarget())] == "" {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// sortVersions sorts by what r says; equal ones keep the order of keys.
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

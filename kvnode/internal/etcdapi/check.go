package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The checks of this file are etcd's, in etcd's order: a request that is wrong
// twice gets the same error here and there.

func checkRange(r *pb.RangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if !known(pb.RangeRequest_SortOrder_name, r.GetSortOrder()) || !known(pb.RangeRequest_SortTarget_name, r.GetSortTarget()) {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

func known[E ~int32](names map[int32]string, v E) bool {
	_, ok := names[int32(v)]
	return ok
}

// checkRangeStream refuses what etcd does not stream, although this store
// could: a client that falls back to Range works with either.
func checkRangeStream(r *pb.RangeRequest) error {
	if err := checkRange(r); err != nil {
		return err
	}
	byKey := r.GetSortTarget() == pb.RangeRequest_KEY && r.GetSortOrder() == pb.RangeRequest_ASCEND
	if r.GetSortOrder() != pb.RangeRequest_NONE && !byKey {
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	}
	if r.GetMinModRevision() != 0 || r.GetMaxModRevision() != 0 || r.GetMinCreateRevision() != 0 || r.GetMaxCreateRevision() != 0 {
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return nil
}

func checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.GetIgnoreValue() && len(r.GetValue()) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.GetIgnoreLease() && r.GetLease() != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

func checkDelete(r *pb.DeleteRangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// checkTxn checks r, whose longest list may have maxOps elements. What it does
// not use of them is left to the transactions within, so that the depth of
// nesting is bounded as well.
func checkTxn(r *pb.TxnRequest, maxOps int) error {
	n := max(len(r.GetCompare()), len(r.GetSuccess()), len(r.GetFailure()))
	if n > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.GetCompare() {
		if len(c.GetKey()) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, branch := range [][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range branch {
			if err := checkOp(op, maxOps-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op *pb.RequestOp, maxOps int) error {
	switch o := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return checkRange(o.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(o.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return checkDelete(o.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return checkTxn(o.RequestTxn, maxOps)
	default:
		return rpctypes.ErrGRPCKeyNotFound
	}
}

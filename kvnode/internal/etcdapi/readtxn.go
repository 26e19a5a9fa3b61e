package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// readTxn answers a transaction that only reads, as of one revision.
func (s *kvServer) readTxn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := s.mayRead(ctx, localOnly(r)); err != nil {
		return nil, err
	}
	resp, err := s.node.Store().Txn(ownContext(ctx), r)
	if err != nil {
		return nil, clientError(err)
	}
	s.fill(resp.GetHeader())
	s.countTxn(resp)
	return resp, nil
}

// countTxn counts the ranges of a transaction that was answered.
func (a *API) countTxn(resp *pb.TxnResponse) {
	ranges := rangesOf(resp)
	a.times.ranges.Add(ranges)
	if ranges > 1 {
		a.times.txns.Add(1)
	}
}

func rangesOf(resp *pb.TxnResponse) (n uint64) {
	for _, r := range resp.GetResponses() {
		if nested := r.GetResponseTxn(); nested != nil {
			n += rangesOf(nested)
		} else {
			n++
		}
	}
	return n
}

// readOnly reports whether no branch of r, however deep, writes.
func readOnly(r *pb.TxnRequest) bool {
	return everyOp(r, func(op *pb.RequestOp) bool { return op.GetRequestRange() != nil })
}

// localOnly reports whether all that r reads may be stale. A transaction that
// only compares is not: nothing in it says so.
func localOnly(r *pb.TxnRequest) bool {
	ranges := 0
	all := everyOp(r, func(op *pb.RequestOp) bool {
		ranges++
		return op.GetRequestRange().GetSerializable()
	})
	return all && ranges > 0
}

// everyOp reports whether ok holds for every operation of r that is not itself
// a transaction.
func everyOp(r *pb.TxnRequest, ok func(*pb.RequestOp) bool) bool {
	for _, branch := range [][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range branch {
			if t := op.GetRequestTxn(); t != nil {
				if !everyOp(t, ok) {
					return false
				}
				continue
			}
			if !ok(op) {
				return false
			}
		}
	}
	return true
}

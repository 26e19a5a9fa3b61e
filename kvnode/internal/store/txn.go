package store

import (
	"bytes"
	"cmp"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// EveryOp reports whether ok holds for every operation of t, in both branches and in nested
// transactions.
func EveryOp(t *pb.TxnRequest, ok func(*pb.RequestOp) bool) bool {
	for _, branch := range [][]*pb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		for _, op := range branch {
			if nested := op.GetRequestTxn(); nested != nil && !EveryOp(nested, ok) || nested == nil && !ok(op) {
				return false
			}
		}
	}
	return true
}

// ReadOnly reports whether all operations of t are ranges. Then t needs no entry in the log.
func ReadOnly(t *pb.TxnRequest) bool {
	return EveryOp(t, func(op *pb.RequestOp) bool { return op.GetRequestRange() != nil })
}

// txn executes t as an entry of the log. It uses no context: if one member's context ended early,
// the members' states would diverge.
func (w *transaction) txn(t *pb.TxnRequest) (*pb.TxnResponse, error) {
	return w.txnContext(context.Background(), t)
}

// txnContext executes t. All comparisons, including those of nested transactions, and all checks
// use the state before t. Then the operations run, and each sees the writes of the earlier ones.
//
// A transaction succeeds or fails as a whole. check finds nearly all errors before the first write.
// If execute fails (an earlier operation has deleted a key), runTransaction rolls back.
func (w *transaction) txnContext(ctx context.Context, t *pb.TxnRequest) (*pb.TxnResponse, error) {
	path, err := w.view().decide(ctx, nil, t)
	if err != nil {
		return nil, err
	}
	if _, err := w.check(t, path); err != nil {
		return nil, err
	}
	resp, _, err := w.execute(ctx, t, path)
	if err != nil {
		return nil, err
	}
	resp.Header = &pb.ResponseHeader{Revision: w.revision()} // not shared: the caller completes it
	return resp, nil
}

// decide appends the results of t's comparisons to path: t's own first, then those of the
// transactions nested in the branch taken, depth first. check and execute visit the transactions in
// the same order, and each takes its own result off the front.
//
// All comparisons run before the first write, as in etcd: a nested comparison does not see the
// operations before it.
func (w view) decide(ctx context.Context, path []bool, t *pb.TxnRequest) ([]bool, error) {
	ok, err := w.holdsAll(ctx, t.GetCompare())
	if err != nil {
		return nil, err
	}
	path = append(path, ok)
	for _, op := range branch(t, ok) {
		if nested := op.GetRequestTxn(); nested != nil {
			if path, err = w.decide(ctx, path, nested); err != nil {
				return nil, err
			}
		}
	}
	return path, nil
}

func branch(t *pb.TxnRequest, ok bool) []*pb.RequestOp {
	if ok {
		return t.GetSuccess()
	}
	return t.GetFailure()
}

// check validates the operations on the path before any of them runs. It returns the rest of the
// path.
func (w *transaction) check(t *pb.TxnRequest, path []bool) ([]bool, error) {
	ops, path := branch(t, path[0]), path[1:]
	for _, op := range ops {
		var err error
		switch {
		case op.GetRequestRange() != nil:
			err = w.checkRange(op.GetRequestRange())
		case op.GetRequestPut() != nil:
			err = w.checkPut(op.GetRequestPut(), w.view().find(op.GetRequestPut().GetKey()))
		case op.GetRequestDeleteRange() != nil:
		case op.GetRequestTxn() != nil:
			path, err = w.check(op.GetRequestTxn(), path)
		default:
			// etcd's error for an empty operation. It keeps such operations away from
			// execute.
			err = rpctypes.ErrGRPCKeyNotFound
		}
		if err != nil {
			return nil, err
		}
	}
	return path, nil
}

// checkRange checks a range within a transaction. As in etcd, a negative revision is refused if it
// is below the compacted one, which is -1 before the first compaction. Outside a transaction, a
// negative revision means the newest. Nothing is written yet, so base is the newest revision that a
// range may name.
func (w *transaction) checkRange(r *pb.RangeRequest) error {
	switch rev := r.GetRevision(); {
	case rev == 0:
		return CheckSort(r)
	case rev > w.base:
		return rpctypes.ErrGRPCFutureRev
	case rev < w.st.compacted.Load():
		return rpctypes.ErrGRPCCompacted
	default:
		return CheckSort(r)
	}
}

// execute runs the operations on the path and returns the rest of the path. The header of a nested
// transaction's response stays empty, as in etcd.
//
// Each operation calls w.view again, since the view moves to base+1 with the first write.
func (w *transaction) execute(ctx context.Context, t *pb.TxnRequest, path []bool) (*pb.TxnResponse, []bool, error) {
	ops := branch(t, path[0])
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: path[0], Responses: make([]*pb.ResponseOp, len(ops))}
	path = path[1:]
	for i, op := range ops {
		out := &pb.ResponseOp{}
		var err error
		switch {
		case op.GetRequestRange() != nil:
			w.ops.Ranges++
			one := &pb.ResponseOp_ResponseRange{}
			one.ResponseRange, err = w.view().rangeKeys(ctx, op.GetRequestRange())
			out.Response = one
		case op.GetRequestPut() != nil:
			one := &pb.ResponseOp_ResponsePut{}
			one.ResponsePut, err = w.put(op.GetRequestPut())
			out.Response = one
		case op.GetRequestDeleteRange() != nil:
			one := &pb.ResponseOp_ResponseDeleteRange{}
			one.ResponseDeleteRange, err = w.deleteRange(op.GetRequestDeleteRange())
			out.Response = one
		case op.GetRequestTxn() != nil:
			one := &pb.ResponseOp_ResponseTxn{}
			one.ResponseTxn, path, err = w.execute(ctx, op.GetRequestTxn(), path)
			out.Response = one
		}
		if err != nil {
			return nil, nil, err
		}
		resp.Responses[i] = out
	}
	return resp, path, nil
}

// holdsAll reports whether all comparisons hold.
func (w view) holdsAll(ctx context.Context, cs []*pb.Compare) (bool, error) {
	for _, c := range cs {
		if ok, err := w.holds(ctx, c); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// holds reports whether c holds for each key in its range. If the range has no key, c is compared
// with zero values, except that a comparison of values fails: an empty value is not a missing one.
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

// compare reports whether c holds for v. nil has all fields zero. Like etcd, it treats an operand
// of the wrong type as zero, and an unknown comparison as true.
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

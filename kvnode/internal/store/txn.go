package store

import (
	"bytes"
	"cmp"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// txnWrites reports whether t has anything but ranges in it, in either branch: which one is
// taken is not known before it is applied. What has only ranges needs no entry of the log.
func txnWrites(t *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			if op.GetRequestRange() == nil && (op.GetRequestTxn() == nil || txnWrites(op.GetRequestTxn())) {
				return true
			}
		}
	}
	return false
}

// txn carries out t as an entry of the log. There is no context to end it: were one member's
// to end before another's, their states would differ from then on.
func (w *writer) txn(t *pb.TxnRequest) (*pb.TxnResponse, error) {
	return w.txnContext(context.Background(), t)
}

// txnContext carries out t: every compare, of nested transactions too, and every
// check is made on the state before it; then come the operations, which see what
// those before them wrote.
//
// It fails as a whole. Nearly everything that can fail does so in check, before anything is
// written; for what execute finds (a key that an operation before has deleted) the writer is
// rolled back.
func (w *writer) txnContext(ctx context.Context, t *pb.TxnRequest) (*pb.TxnResponse, error) {
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
	resp.Header = &pb.ResponseHeader{Revision: w.revision()} // its own: who answers completes it
	return resp, nil
}

// decide appends to path what the compares of t give, then those of the
// transactions nested in the branch taken, in order. That is the order in which check and
// execute come to them, depth first, and each takes its own decision off the front.
//
// All are decided before anything is written, as in etcd: a compare of a nested transaction
// does not see what operations before it put.
func (w view) decide(ctx context.Context, path []bool, t *pb.TxnRequest) ([]bool, error) {
	ok, err := w.holdAll(ctx, t.GetCompare())
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

// check finds what is wrong with the operations on the path before any is
// carried out. It returns the path that is left.
func (w *writer) check(t *pb.TxnRequest, path []bool) ([]bool, error) {
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
			// What etcd says of an operation that is empty. So execute, which has no case for it, meets none.
			err = rpctypes.ErrGRPCKeyNotFound
		}
		if err != nil {
			return nil, err
		}
	}
	return path, nil
}

// checkRange differs from a range outside a transaction: a negative revision
// counts as one, as in etcd. Nothing is written yet, so base is the newest revision; the one
// that the transaction makes is still to come, and no range in it can ask for that by number.
func (w *writer) checkRange(r *pb.RangeRequest) error {
	switch rev := r.GetRevision(); {
	case rev == 0:
		return checkSort(r)
	case rev > w.base:
		return rpctypes.ErrGRPCFutureRev
	case rev < w.st.compacted.Load():
		return rpctypes.ErrGRPCCompacted
	default:
		return checkSort(r)
	}
}

// execute carries out the operations on the path and returns the path that is
// left. The header stays empty, as etcd leaves it in nested responses; txnContext fills that
// of the outermost, last, when it is known whether anything was written.
//
// Each operation reads through w.view anew: that moves to base+1 with the first write, and a
// view taken before would not show it.
func (w *writer) execute(ctx context.Context, t *pb.TxnRequest, path []bool) (*pb.TxnResponse, []bool, error) {
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

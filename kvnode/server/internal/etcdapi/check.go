package etcdapi

import (
	"github.com/tidwall/btree"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// The checks in this file are etcd's, in etcd's order: a request with two faults gets
// the same error as from etcd.

func checkRange(r *pb.RangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return store.CheckSort(r)
}

// checkRangeStream rejects what etcd does not stream, although this store could. A client that
// falls back to Range then works with both.
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

// checkTxn checks r. None of its lists may have more than maxOps elements. For a nested transaction the limit
// is lower by the length of its parent's longest list, so the depth of nesting is limited.
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

// checkOverlaps rejects a transaction that could put a key twice, or put and delete it, on one
// path through its branches.
func checkOverlaps(r *pb.TxnRequest) error {
	if _, err := collectWrites(r.GetSuccess()); err != nil {
		return err
	}
	_, err := collectWrites(r.GetFailure())
	return err
}

// writes are the keys that a branch may write.
type writes struct {
	puts map[string]struct{}
	dels intervals
}

// addPut adds a put. No other write of w may touch its key.
func (w *writes) addPut(key string) error {
	if _, twice := w.puts[key]; twice || w.dels.contains(key) {
		return rpctypes.ErrGRPCDuplicateKey
	}
	w.puts[key] = struct{}{}
	return nil
}

// collectWrites returns what ops may write. The order of the checks is etcd's: this branch's
// deletions, then nested transactions, then its puts. As in etcd, a key that one nested
// transaction puts and a later one deletes is accepted.
func collectWrites(ops []*pb.RequestOp) (*writes, error) {
	w := &writes{puts: make(map[string]struct{})}
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			w.dels.add(deleted(d))
		}
	}
	for _, op := range ops {
		if t := op.GetRequestTxn(); t != nil {
			if err := w.addTxn(t); err != nil {
				return nil, err
			}
		}
	}
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			if err := w.addPut(string(p.GetKey())); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// addTxn adds what a nested transaction may write. Only one of its branches is executed, so both
// may put the same key.
func (w *writes) addTxn(t *pb.TxnRequest) error {
	then, err := collectWrites(t.GetSuccess())
	if err != nil {
		return err
	}
	otherwise, err := collectWrites(t.GetFailure())
	if err != nil {
		return err
	}
	for key := range then.puts {
		if err := w.addPut(key); err != nil {
			return err
		}
	}
	for key := range otherwise.puts {
		if _, both := then.puts[key]; both {
			continue
		}
		if err := w.addPut(key); err != nil {
			return err
		}
	}
	w.dels.addAll(&then.dels)
	w.dels.addAll(&otherwise.dels)
	return nil
}

// deleted returns the keys that d deletes: from begin, up to and excluding end. A range end of
// one zero byte means all keys from begin on, and becomes infinite.
func deleted(d *pb.DeleteRangeRequest) (begin, end string) {
	begin, end = string(d.GetKey()), string(d.GetRangeEnd())
	switch end {
	case "":
		end = begin + "\x00"
	case fromKey:
		end = infinite
	}
	return begin, end
}

const (
	fromKey = "\x00"
	// infinite is the end of an unlimited interval. No real interval can end there.
	infinite = ""
)

// isBefore reports whether key is below the end of an interval.
func isBefore(key, end string) bool { return end == infinite || key < end }

// laterEnd returns the greater of two ends.
func laterEnd(a, b string) string {
	if a == infinite || b == infinite {
		return infinite
	}
	return max(a, b)
}

// intervals is a set of half-open intervals of keys, ordered by their begin. Invariant: the
// intervals are disjoint and do not touch, so a look-up is one search.
type intervals struct{ ends btree.Map[string, string] }

func (s *intervals) add(begin, end string) {
	if !isBefore(begin, end) {
		return
	}
	s.ends.Descend(begin, func(b, e string) bool {
		if e == begin || isBefore(begin, e) {
			begin, end = b, laterEnd(end, e)
		}
		return false
	})
	var absorbed []string
	s.ends.Ascend(begin, func(b, e string) bool {
		if b != end && !isBefore(b, end) {
			return false
		}
		absorbed = append(absorbed, b)
		end = laterEnd(end, e)
		return true
	})
	for _, b := range absorbed {
		s.ends.Delete(b)
	}
	s.ends.Set(begin, end)
}

func (s *intervals) addAll(other *intervals) {
	other.ends.Scan(func(b, e string) bool {
		s.add(b, e)
		return true
	})
}

func (s *intervals) contains(key string) (found bool) {
	s.ends.Descend(key, func(_, e string) bool {
		found = isBefore(key, e)
		return false
	})
	return found
}

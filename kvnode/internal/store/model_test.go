package store_test

import (
	"bytes"
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// model is the simplest specification of a store: the list of all writes. It has no chains,
// compaction of memory, or checkpoints.
type model struct {
	rev       int64
	compacted int64
	writes    []*mvccpb.KeyValue // in order; Version 0 is a tombstone
}

func newModel() *model { return &model{rev: 1, compacted: -1} }

// keys returns the live keys at rev in order.
func (m *model) keys(rev int64, key, end []byte) []*mvccpb.KeyValue {
	last := map[string]*mvccpb.KeyValue{}
	for _, w := range m.writes {
		if w.GetModRevision() <= rev {
			last[string(w.GetKey())] = w
		}
	}
	var out []*mvccpb.KeyValue
	for k, w := range last {
		in := k == string(key)
		if string(end) == "\x00" {
			in = k >= string(key)
		} else if len(end) > 0 {
			in = k >= string(key) && k < string(end)
		}
		if in && w.GetVersion() > 0 {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.GetKey(), b.GetKey()) })
	return out
}

func (m *model) apply(r *pb.InternalRaftRequest) (proto.Message, error) {
	next := *m
	next.writes = slices.Clip(m.writes)
	resp, err := next.request(r)
	if err != nil {
		return nil, err
	}
	if len(next.writes) > len(m.writes) {
		next.rev++
	}
	*m = next
	return resp, nil
}

func (m *model) request(r *pb.InternalRaftRequest) (proto.Message, error) {
	at := m.rev
	switch {
	case r.GetRange() != nil:
		return m.rangeAt(at, r.GetRange())
	case r.GetPut() != nil:
		return m.put(r.GetPut())
	case r.GetDeleteRange() != nil:
		return m.del(at, r.GetDeleteRange())
	case r.GetTxn() != nil:
		return m.txn(r.GetTxn())
	case r.GetCompaction() != nil:
		switch rev := r.GetCompaction().GetRevision(); {
		case rev <= m.compacted:
			return nil, rpctypes.ErrGRPCCompacted
		case rev > m.rev:
			return nil, rpctypes.ErrGRPCFutureRev
		default:
			m.compacted = rev
			return &pb.CompactionResponse{Header: header(m.rev)}, nil
		}
	default:
		panic("the model does not know this request")
	}
}

func header(rev int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: rev} }

// one returns the pair of key at rev, nil if there is none.
func (m *model) one(rev int64, key []byte) *mvccpb.KeyValue {
	if kvs := m.keys(rev, key, nil); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

func (m *model) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	prev := m.one(m.rev+1, r.GetKey())
	if r.GetLease() != 0 {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	if prev == nil && (r.GetIgnoreLease() || r.GetIgnoreValue()) {
		return nil, rpctypes.ErrGRPCKeyNotFound
	}
	w := &mvccpb.KeyValue{Key: r.GetKey(), Value: r.GetValue(), CreateRevision: m.rev + 1, ModRevision: m.rev + 1, Version: 1}
	if prev != nil {
		w.CreateRevision = prev.GetCreateRevision()
		w.Version = prev.GetVersion() + 1
		if r.GetIgnoreValue() {
			w.Value = prev.GetValue()
		}
	}
	m.writes = append(m.writes, w)
	resp := &pb.PutResponse{Header: header(m.rev + 1)}
	if r.GetPrevKv() {
		resp.PrevKv = prev
	}
	return resp, nil
}

func (m *model) del(at int64, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	resp := &pb.DeleteRangeResponse{}
	for _, kv := range m.keys(m.rev+1, r.GetKey(), r.GetRangeEnd()) {
		m.writes = append(m.writes, &mvccpb.KeyValue{Key: kv.GetKey(), ModRevision: m.rev + 1})
		resp.Deleted++
		at = m.rev + 1
		if r.GetPrevKv() {
			resp.PrevKvs = append(resp.PrevKvs, kv)
		}
	}
	resp.Header = header(at)
	return resp, nil
}

func (m *model) rangeAt(at int64, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	rev, err := m.revisionOf(at, r)
	if err != nil {
		return nil, err
	}
	kvs := m.keys(rev, r.GetKey(), r.GetRangeEnd())
	resp := &pb.RangeResponse{Header: header(at), Count: int64(len(kvs))}
	if r.GetCountOnly() {
		return resp, nil
	}
	limit := int(r.GetLimit())
	byKey := r.GetSortTarget() == pb.RangeRequest_KEY
	if limit > 0 && limit < len(kvs) && !isFiltered(r) && (r.GetSortOrder() == pb.RangeRequest_NONE || byKey && r.GetSortOrder() == pb.RangeRequest_ASCEND) {
		kvs = kvs[:limit+1]
	}
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool { return isOutside(kv, r) })
	sortAs(kvs, r)
	if limit > 0 && len(kvs) > limit {
		kvs, resp.More = kvs[:limit], true
	}
	for _, kv := range kvs {
		kv = proto.CloneOf(kv)
		if r.GetKeysOnly() {
			kv.Value = nil
		}
		resp.Kvs = append(resp.Kvs, kv)
	}
	return resp, nil
}

// revisionOf returns the revision that r asks for. at is the newest one.
func (m *model) revisionOf(at int64, r *pb.RangeRequest) (rev int64, err error) {
	rev = r.GetRevision()
	if rev <= 0 {
		rev = at
	}
	switch {
	case rev > at:
		return 0, rpctypes.ErrGRPCFutureRev
	case rev < m.compacted:
		return 0, rpctypes.ErrGRPCCompacted
	default:
		return rev, nil
	}
}

func isFiltered(r *pb.RangeRequest) bool {
	return r.GetMinModRevision() != 0 || r.GetMaxModRevision() != 0 || r.GetMinCreateRevision() != 0 || r.GetMaxCreateRevision() != 0
}

// isOutside reports whether the revision filters of r exclude kv.
func isOutside(kv *mvccpb.KeyValue, r *pb.RangeRequest) bool {
	return r.GetMaxModRevision() != 0 && kv.GetModRevision() > r.GetMaxModRevision() ||
		r.GetMinModRevision() != 0 && kv.GetModRevision() < r.GetMinModRevision() ||
		r.GetMaxCreateRevision() != 0 && kv.GetCreateRevision() > r.GetMaxCreateRevision() ||
		r.GetMinCreateRevision() != 0 && kv.GetCreateRevision() < r.GetMinCreateRevision()
}

func sortAs(kvs []*mvccpb.KeyValue, r *pb.RangeRequest) {
	sign := 1
	if r.GetSortOrder() == pb.RangeRequest_DESCEND {
		sign = -1
	}
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		return sign * map[pb.RangeRequest_SortTarget]int{
			pb.RangeRequest_KEY:     bytes.Compare(a.GetKey(), b.GetKey()),
			pb.RangeRequest_VERSION: cmp.Compare(a.GetVersion(), b.GetVersion()),
			pb.RangeRequest_CREATE:  cmp.Compare(a.GetCreateRevision(), b.GetCreateRevision()),
			pb.RangeRequest_MOD:     cmp.Compare(a.GetModRevision(), b.GetModRevision()),
			pb.RangeRequest_VALUE:   bytes.Compare(a.GetValue(), b.GetValue()),
		}[r.GetSortTarget()]
	})
}

func (m *model) txn(t *pb.TxnRequest) (*pb.TxnResponse, error) {
	before := *m
	if err := m.checkTxn(&before, t); err != nil {
		return nil, err
	}
	resp, err := m.runTxn(&before, t)
	if err != nil {
		return nil, err
	}
	resp.Header = header(m.rev)
	if len(m.writes) > len(before.writes) {
		resp.Header = header(m.rev + 1)
	}
	return resp, nil
}

// ops returns the branch that the comparisons choose.
func (m *model) ops(t *pb.TxnRequest) ([]*pb.RequestOp, bool) {
	for _, c := range t.GetCompare() {
		kvs := m.keys(m.rev, c.GetKey(), c.GetRangeEnd())
		if len(kvs) == 0 {
			if c.GetTarget() == pb.Compare_VALUE {
				return t.GetFailure(), false
			}
			kvs = []*mvccpb.KeyValue{{}}
		}
		for _, kv := range kvs {
			if !holds(c, kv) {
				return t.GetFailure(), false
			}
		}
	}
	return t.GetSuccess(), true
}

func holds(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	d := map[pb.Compare_CompareTarget]int{
		pb.Compare_VALUE:   bytes.Compare(kv.GetValue(), c.GetValue()),
		pb.Compare_CREATE:  cmp.Compare(kv.GetCreateRevision(), c.GetCreateRevision()),
		pb.Compare_MOD:     cmp.Compare(kv.GetModRevision(), c.GetModRevision()),
		pb.Compare_VERSION: cmp.Compare(kv.GetVersion(), c.GetVersion()),
		pb.Compare_LEASE:   cmp.Compare(kv.GetLease(), c.GetLease()),
	}[c.GetTarget()]
	return map[pb.Compare_CompareResult]bool{
		pb.Compare_EQUAL: d == 0, pb.Compare_NOT_EQUAL: d != 0, pb.Compare_GREATER: d > 0, pb.Compare_LESS: d < 0,
	}[c.GetResult()]
}

func (m *model) checkTxn(before *model, t *pb.TxnRequest) error {
	ops, _ := before.ops(t)
	for _, op := range ops {
		var err error
		switch {
		case op.GetRequestRange() != nil:
			if rev := op.GetRequestRange().GetRevision(); rev > before.rev {
				err = rpctypes.ErrGRPCFutureRev
			} else if rev != 0 && rev < before.compacted {
				err = rpctypes.ErrGRPCCompacted
			}
		case op.GetRequestPut() != nil:
			scratch := *before
			_, err = scratch.put(op.GetRequestPut())
		case op.GetRequestTxn() != nil:
			err = m.checkTxn(before, op.GetRequestTxn())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *model) runTxn(before *model, t *pb.TxnRequest) (*pb.TxnResponse, error) {
	ops, ok := before.ops(t)
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: ok}
	for _, op := range ops {
		out, err := m.runOp(before, op)
		if err != nil {
			return nil, err
		}
		resp.Responses = append(resp.Responses, out)
	}
	return resp, nil
}

func (m *model) runOp(before *model, op *pb.RequestOp) (*pb.ResponseOp, error) {
	at := m.rev
	if len(m.writes) > len(before.writes) {
		at++
	}
	switch {
	case op.GetRequestRange() != nil:
		r, err := m.rangeAt(at, op.GetRequestRange())
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: r}}, err
	case op.GetRequestPut() != nil:
		r, err := m.put(op.GetRequestPut())
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: r}}, err
	case op.GetRequestDeleteRange() != nil:
		r, err := m.del(at, op.GetRequestDeleteRange())
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: r}}, err
	default:
		r, err := m.runTxn(before, op.GetRequestTxn())
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: r}}, err
	}
}

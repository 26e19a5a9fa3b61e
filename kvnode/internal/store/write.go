package store

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// writer makes the versions of one revision. Readers do not see them before it
// is published, so they can be taken back. It lives within one Apply, under the apply lock:
// neither another writer nor the trimmer changes a chain meanwhile.
type writer struct {
	st         *state
	base       int64      // the revision before
	changes    []*Version // in order; the place is the sub-revision. All have mod base+1
	ops        Ops
	lastHeader *pb.ResponseHeader
}

// write carries out op and publishes what it wrote, or takes it back if op
// fails. Nothing written means no new revision.
func write[Req, Resp proto.Message](s *Store, st *state, op func(*writer, Req) (Resp, error), req Req) (proto.Message, error) {
	w := &writer{st: st, base: st.revision.Load(), changes: st.scratch[:0]}
	resp, err := op(w, req)
	switch {
	case err != nil:
		w.rollback()
		return nil, err
	case len(w.changes) > 0:
		s.publish(st, w)
	}
	s.ops.add(&w.ops)
	// The list is used again, and must not keep versions that a compaction frees.
	clear(w.changes)
	st.scratch = w.changes[:0]
	return resp, nil
}

// publish makes the new revision visible and then tells the watches. The other way round a
// client could hear of a revision that a read of it does not show yet.
//
// The revision comes after all that leads to its versions: chains, history, index.note. A
// reader loads the revision first and so finds a transaction whole. What only writers and
// checkpoints look at (unsaved, garbage, growth) may be told in any order.
func (s *Store) publish(st *state, w *writer) {
	st.unsaved.versions = append(st.unsaved.versions, w.changes...)
	for _, v := range w.changes {
		st.garbage.add(v)
		st.history.add(v)
		st.leases.reattach(v.prev.Load().live(), v)
		st.unsaved.bytes += v.cost()
		st.growth.Add(v.cost())
	}
	st.index.updateDead(w.base+1, w.changes...)
	st.revision.Store(w.base + 1)
	if s.events != nil {
		s.events(w.base+1, writes(w.changes))
	}
}

// writes is what the watches are told. The version before is still there for each: who frees
// versions waits for the apply lock. It is the one before this revision for the first write of
// a key in it only; for a later one it is the one before in the same transaction.
func writes(changes []*Version) []Write {
	out := make([]Write, len(changes))
	for i, v := range changes {
		out[i] = Write{KV: v, Prev: v.prev.Load().live(), Deleted: v.tombstone()}
	}
	return out
}

// rollback takes back all that the writer has made, the newest first, so that a key which it
// has written twice gets back the version from before it. No reader has seen any of it: the
// revision was not published. A key that it has made leaves the index again, where note has
// not counted it yet.
func (w *writer) rollback() {
	for _, v := range slices.Backward(w.changes) {
		prev := v.prev.Load()
		v.of.head.Store(prev)
		if prev == nil {
			w.st.index.remove(v.of)
		}
	}
	clear(w.changes)
}

// revision returns what a response says, and what reads of the writer see: the
// new revision once something is written.
func (w *writer) revision() int64 {
	if len(w.changes) > 0 {
		return w.base + 1
	}
	return w.base
}

// view shows what the writer has written so far: an operation of a transaction sees what those
// before it did, and no other reader does.
func (w *writer) view() view { return view{w.st, w.revision()} }

// header is that of an operation. All of a transaction share it, but for those before its first
// write, so nobody may change one that is not the outermost's.
func (w *writer) header() *pb.ResponseHeader {
	if rev := w.revision(); w.lastHeader.GetRevision() != rev || w.lastHeader == nil {
		w.lastHeader = &pb.ResponseHeader{Revision: rev}
	}
	return w.lastHeader
}

// prepend makes v the newest version of its key; a v whose number is 0 is a tombstone. All of v
// is set before head leads to it, for readers are walking this chain: they pass over v since its
// revision is above theirs.
func (w *writer) prepend(c *chain, v *Version) {
	v.sub = uint32(len(w.changes))
	v.of = c
	v.mod = w.base + 1
	v.prev.Store(c.head.Load())
	c.head.Store(v)
	w.changes = append(w.changes, v)
}

func (w *writer) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	w.ops.Puts++
	w.ops.PutBytes += uint64(len(r.GetKey()) + len(r.GetValue()))
	c := w.st.index.find(r.GetKey())
	var prev *Version
	if c != nil {
		prev = c.head.Load().live()
	}
	if err := w.checkPut(r, prev); err != nil {
		return nil, err
	}
	// A key that was deleted begins anew: prev is nil then, as a tombstone is not live.
	v := &Version{create: w.base + 1, number: 1, lease: r.GetLease()}
	v.setValue(r.GetValue())
	if prev != nil {
		v.create, v.number = prev.create, prev.number+1
	}
	// There is a prev for both: checkPut has refused them otherwise.
	if r.GetIgnoreValue() {
		v.setValue(prev.GetValue())
	}
	if r.GetIgnoreLease() {
		v.lease = prev.lease
	}
	if c == nil {
		c = newChain(r.GetKey())
		w.prepend(c, v) // before the index leads to the chain: nobody finds one without a version
		w.st.index.add(c)
	} else {
		w.prepend(c, v)
	}
	resp := &pb.PutResponse{Header: w.header()}
	if r.GetPrevKv() {
		resp.PrevKv = prev.Message()
	}
	return resp, nil
}

// checkPut returns why r cannot be carried out on a key that has prev. In a transaction it is
// asked twice: before anything is written, and by put, as an operation before it may have deleted
// the key.
func (w *writer) checkPut(r *pb.PutRequest, prev *Version) error {
	switch {
	case r.GetLease() != 0 && !w.st.leases.has(r.GetLease()):
		return rpctypes.ErrGRPCLeaseNotFound
	case (r.GetIgnoreValue() || r.GetIgnoreLease()) && prev == nil:
		return rpctypes.ErrGRPCKeyNotFound
	default:
		return nil
	}
}

// deleteRange puts a tombstone above each live version of the range, those that the writer has
// put itself among them. No context ends its scan, for the reason that none ends txn.
func (w *writer) deleteRange(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	w.ops.Deletes++
	var found []*Version
	_, err := w.view().scan(context.Background(), r.GetKey(), r.GetRangeEnd(), func(v *Version) bool {
		found = append(found, v)
		return true
	})
	if err != nil {
		return nil, err
	}
	resp := &pb.DeleteRangeResponse{Deleted: int64(len(found))}
	for _, v := range found {
		w.prepend(v.of, &Version{})
		if r.GetPrevKv() {
			resp.PrevKvs = append(resp.PrevKvs, v.Message())
		}
	}
	resp.Header = w.header() // now: the revision is a new one only if something was deleted
	return resp, nil
}

package store

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// transaction executes the operations of one command at one revision. Readers do not see its versions
// until the revision is published, so they can be rolled back. It is used under the apply lock, so no
// other goroutine changes a chain meanwhile. Store.Txn, which only reads, uses one without the lock.
type transaction struct {
	st         *state
	base       int64      // before this command
	changes    []*Version // in order: the index is the sub-revision; all have mod base+1
	ops        Ops
	lastHeader *pb.ResponseHeader
}

// runTransaction runs op and publishes its writes, or rolls them back if op fails. Without writes there is
// no new revision.
func runTransaction[Req, Resp proto.Message](s *Store, st *state, op func(*transaction, Req) (Resp, error), req Req) (proto.Message, error) {
	w := &transaction{st: st, base: st.revision.Load(), changes: st.scratch[:0]}
	resp, err := op(w, req)
	switch {
	case err != nil:
		w.rollback()
		return nil, err
	case len(w.changes) > 0:
		s.publish(st, w)
	}
	s.ops.add(&w.ops)
	// The list is reused and must not keep versions that a compaction frees.
	clear(w.changes)
	st.scratch = w.changes[:0]
	return resp, nil
}

// publish makes the new revision visible, and then passes it to watches. In the other order a
// client could get an event of a revision that its next read does not show.
//
// Chains, history and index are updated before the revision is stored. A reader loads the revision
// first, so it sees a whole transaction.
func (s *Store) publish(st *state, w *transaction) {
	st.unsealed.versions = append(st.unsealed.versions, w.changes...)
	for _, v := range w.changes {
		st.garbage.add(v)
		st.history.add(v)
		st.leases.reattach(v.prev.Load().live(), v)
		st.unsealed.bytes += v.cost()
		st.growth.Add(v.cost())
	}
	st.index.updateDead(w.base+1, w.changes...)
	st.revision.Store(w.base + 1)
	if s.events != nil {
		s.events(w.base+1, eventsOf(w.changes))
	}
}

// eventsOf returns the events of a revision. Each previous version is still there, because freeing
// waits for the apply lock. If a transaction writes a key twice, the previous version of the second
// write is the first one.
func eventsOf(changes []*Version) []Write {
	out := make([]Write, len(changes))
	for i, v := range changes {
		out[i] = Write{KV: v, Prev: v.prev.Load().live(), Deleted: v.tombstone()}
	}
	return out
}

// rollback removes all versions of the transaction, newest first, so a key that was written twice gets
// back its version from before. No reader has seen them, since the revision was not published. Keys
// that the transaction created leave the index.
func (w *transaction) rollback() {
	for _, v := range slices.Backward(w.changes) {
		prev := v.prev.Load()
		v.of.head.Store(prev)
		if prev == nil {
			w.st.index.remove(v.of)
		}
	}
	clear(w.changes)
}

// revision returns the revision for responses and for reads of this transaction: the new one after the
// first write.
func (w *transaction) revision() int64 {
	if len(w.changes) > 0 {
		return w.base + 1
	}
	return w.base
}

// view shows the writes so far: an operation of a transaction sees the operations before it.
func (w *transaction) view() view { return view{w.st, w.revision()} }

// header returns the header of an operation's response. Operations of one transaction share it, so
// it is not changed. The transaction's own response has another header.
func (w *transaction) header() *pb.ResponseHeader {
	if rev := w.revision(); w.lastHeader.GetRevision() != rev || w.lastHeader == nil {
		w.lastHeader = &pb.ResponseHeader{Revision: rev}
	}
	return w.lastHeader
}

// prepend makes v the newest version of its key. v.number is 0 for a tombstone. All fields of v are
// set before head points to it, because readers walk the chain. They skip v, since its revision is
// above theirs.
func (w *transaction) prepend(c *chain, v *Version) {
	v.sub = uint32(len(w.changes))
	v.of = c
	v.mod = w.base + 1
	v.prev.Store(c.head.Load())
	c.head.Store(v)
	w.changes = append(w.changes, v)
}

func (w *transaction) put(r *pb.PutRequest) (*pb.PutResponse, error) {
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
	// A deleted key starts anew: its tombstone is not live, so prev is nil.
	v := &Version{create: w.base + 1, number: 1, lease: r.GetLease()}
	v.setValue(r.GetValue())
	if prev != nil {
		v.create, v.number = prev.create, prev.number+1
	}
	// checkPut has made sure that prev exists for both options.
	if r.GetIgnoreValue() {
		v.setValue(prev.GetValue())
	}
	if r.GetIgnoreLease() {
		v.lease = prev.lease
	}
	if c == nil {
		c = newChain(r.GetKey())
		w.prepend(c, v) // before the index leads to the chain, so no chain in it is empty
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

// checkPut returns an error if r is not allowed for a key with the live version prev. Within a
// transaction it runs twice: before the first write, and in put, since an earlier operation may
// have deleted the key.
func (w *transaction) checkPut(r *pb.PutRequest, prev *Version) error {
	switch {
	case r.GetLease() != 0 && !w.st.leases.has(r.GetLease()):
		return rpctypes.ErrGRPCLeaseNotFound
	case (r.GetIgnoreValue() || r.GetIgnoreLease()) && prev == nil:
		return rpctypes.ErrGRPCKeyNotFound
	default:
		return nil
	}
}

// deleteRange adds a tombstone to each live key of the range, including keys that this transaction has
// put. The scan has no context, for the same reason as in txn.
func (w *transaction) deleteRange(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
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
	resp.Header = w.header() // after the tombstones: without any, the revision is the old one
	return resp, nil
}

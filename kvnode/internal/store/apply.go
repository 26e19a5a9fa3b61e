package store

import (
	"context"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Apply applies a normal entry: index and term are the entry's, data is an
// encoded Command or empty. It is deterministic, and whatever data holds it does
// not panic. An entry that is applied already changes nothing.
//
// Deterministic means that neither the clock, nor chance, nor the order of a map, nor
// what only this member knows decides anything here. A member that decided otherwise
// than another would hold other data from then on, and nothing but a comparison shows
// that (package hashcheck).
//
// Entries come one at a time and in the order of the log, from one goroutine: the store
// checks that an index is new, not that it is the next one.
func (s *Store) Apply(index, term uint64, data []byte) Result {
	// Decoding looks at nothing of the state, so it is done before the lock: a checkpoint and
	// the trimmer wait for that.
	c, err := DecodeCommand(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Loaded under the lock: Restore puts another state in its place under the same lock.
	st := s.state.Load()
	if index <= st.applied.Load() {
		// After a restart raft hands out entries that the checkpoint has, too. A put that
		// was applied twice would have a revision that it has on no other member.
		return Result{Err: ErrStale}
	}
	st.term = term // of the checkpoint that is made next, also if the entry does nothing
	var r Result
	if err != nil || c.Grants != nil && st.format.Load() < FormatGrants {
		// A version that does not know the command takes it for malformed, too. So all
		// members refuse it as long as one of them may be of such a version.
		r.Err = ErrMalformed
	} else {
		r = s.applyLocked(st, index, term, c)
	}
	// Also for what was refused: who has seen index sees the effect of it. Last, since a reader
	// that finds index applied loads the revision next, and must find that of this entry. The cut
	// comes behind it: it is a checkpoint of index, with all of the entry's effect.
	st.applied.Store(index)
	st.sealIfLarge(s.commitBytes)
	return r
}

// ApplyConf applies a configuration change: conf is what raft switched to, and
// change what it means for the registry of members and the format (nil: nothing).
// An entry that is applied already changes nothing.
//
// conf is nil in a restore of a data directory, where there is no raft: the restored
// cluster gets a configuration of its own.
func (s *Store) ApplyConf(index, term uint64, conf *raftpb.ConfState, change *MemberChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state.Load()
	if index <= st.applied.Load() {
		return
	}
	st.term = term
	if conf != nil {
		st.conf = proto.CloneOf(conf) // raft goes on with its own
	}
	if change != nil {
		// The registry is replaced as a whole: who has loaded the old one goes on reading it.
		st.members.Store(st.members.Load().change(change))
		// The format never sinks, whatever a change says.
		st.format.Store(max(st.format.Load(), change.Format))
	}
	st.applied.Store(index)
}

// applyLocked carries c out, unless it is void: its fence names a term, and the entry is
// of another one. Such a command was proposed by a leader for its own reign only, and
// it may have been appended in a later one all the same. An expiry that such a command
// asks for is out of date then: the next leader counts the time of TTL leases anew.
func (s *Store) applyLocked(st *state, index, term uint64, c *Command) Result {
	r := Result{ID: c.ID, Command: c}
	switch {
	case c.Fence != 0 && c.Fence != term:
		r.Err = ErrFenced
	case c.Register != nil:
		// What a member says of itself, its name and its URLs: no request of a client's.
		var next *Members
		if next, r.Err = st.members.Load().register(c.Register); r.Err == nil {
			st.members.Store(next)
		}
	case c.Request != nil:
		if r.Err = st.checkAllowed(c); r.Err != nil {
			break
		}
		var resp proto.Message
		if resp, r.Err = s.requestLocked(st, index, c); r.Err == nil {
			r.Response = resp
		}
	}
	return r
}

// requestLocked carries out a request of etcd's API. What has no case here changes
// nothing, on every member: it is what a later version may know.
func (s *Store) requestLocked(st *state, index uint64, c *Command) (proto.Message, error) {
	switch r := c.Request; {
	case r.GetRange() != nil:
		// A log read: it has its place in the log, so it needs no index to wait for. Nobody
		// calls it off, since one member alone knows its client.
		s.ops.add(&Ops{Ranges: 1})
		return st.view().rangeKeys(context.Background(), r.GetRange())
	case r.GetPut() != nil:
		return write(s, st, (*writer).put, r.GetPut())
	case r.GetDeleteRange() != nil:
		return write(s, st, (*writer).deleteRange, r.GetDeleteRange())
	case r.GetTxn() != nil:
		return write(s, st, (*writer).txn, r.GetTxn()) // all at one revision, or nothing
	case r.GetCompaction() != nil:
		return s.compactLocked(st, r.GetCompaction())
	case r.GetAlarm() != nil:
		return st.alarm(r.GetAlarm()), nil
	// TTL leases begin and end here, and in no other way: that time has passed the leader proposes.
	case r.GetLeaseGrant() != nil:
		return s.grantLease(st, index, r.GetLeaseGrant())
	case r.GetLeaseRevoke() != nil:
		return s.revokeLease(st, c)
	case r.GetLeaseCheckpoint() != nil:
		return s.checkpointLeases(st, c), nil
	default:
		return nil, ErrUnimplemented
	}
}

// refusal returns why c must not be carried out while alarms are raised, or in this
// format, nil if it may be. Members decide it as they apply, not as they propose, so that
// all of them decide alike.
func (st *state) checkAllowed(c *Command) error {
	r := c.Request
	switch {
	case c.Fence != 0 && c.Grants == nil && st.format.Load() >= FormatGrants && (r.GetLeaseRevoke() != nil || r.GetLeaseCheckpoint() != nil):
		return ErrNoGrant // of a leader that had not come to the format yet
	case len(*st.alarms.Load()) == 0:
		return nil
	// Before the other alarm, as in etcd: it refuses deletions, too, which make room, but on each
	// member of something else.
	case st.raised(pb.AlarmType_CORRUPT) && touchesKeys(r):
		return rpctypes.ErrGRPCCorrupt
	case st.raised(pb.AlarmType_NOSPACE) && grows(r):
		return rpctypes.ErrGRPCNoSpace
	default:
		return nil
	}
}

// touchesKeys reports whether a store that is corrupt must refuse r. Members may hold
// different keys then, so an answer from one of them, and a comparison in a transaction,
// says nothing. Alarms are not among it: one takes the alarm away.
func touchesKeys(r *pb.InternalRaftRequest) bool {
	return r.GetRange() != nil || r.GetPut() != nil || r.GetDeleteRange() != nil || r.GetTxn() != nil ||
		r.GetCompaction() != nil || r.GetLeaseGrant() != nil || r.GetLeaseRevoke() != nil
}

// grows reports whether a store that is full must refuse r. Of a transaction
// that holds for any put in it, whether it would be reached or not. Deletions and
// compactions pass, or nobody could make room; so do Range and the end of TTL leases.
func grows(r *pb.InternalRaftRequest) bool {
	return r.GetPut() != nil || r.GetLeaseGrant() != nil || r.GetTxn() != nil && txnGrows(r.GetTxn())
}

// txnGrows looks at both branches, and at the transactions in them: which one is taken
// is known only once it is applied, and a full store must be able to refuse it before.
func txnGrows(t *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			if op.GetRequestPut() != nil || op.GetRequestTxn() != nil && txnGrows(op.GetRequestTxn()) {
				return true
			}
		}
	}
	return false
}

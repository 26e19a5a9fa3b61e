package store

import (
	"context"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Apply applies a normal entry. data is an encoded Command or empty. An entry that is applied
// already changes nothing. Apply never panics, whatever data holds.
//
// Apply must be deterministic. The clock, chance, the order of a map and data that only this member
// has must not influence the result. Otherwise members diverge, and only a comparison of hashes
// detects it (package hashcheck).
//
// Entries come in the order of the log, from one goroutine. The store checks that an index is new,
// not that it is the next one.
func (s *Store) Apply(index, term uint64, data []byte) Result {
	// Decoding needs no state, so it happens outside the lock, which checkpoints and the
	// freeing of versions wait for.
	c, err := DecodeCommand(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Loaded under the lock, since Restore replaces the state under the lock.
	st := s.state.Load()
	if index <= st.applied.Load() {
		// After a restart raft replays entries that the checkpoint contains. A put that was
		// applied twice would get a revision that it has on no other member.
		return Result{Err: ErrStale}
	}
	st.term = term // also for an entry without effect: the next checkpoint stores it
	var r Result
	if err != nil || c.Generations != nil && st.clusterVersion.Load() < ClusterVersionGenerations {
		// Programs that do not know ClusterVersionGenerations treat this command as malformed. All members must do
		// the same until every one of them knows the cluster version.
		r.Err = ErrMalformed
	} else {
		r = s.applyLocked(st, index, term, c)
	}
	// A refused entry counts as applied, too. applied is stored after the revision, since a reader
	// loads applied first. Sealing comes last, so an increment contains the whole effect of an entry.
	st.applied.Store(index)
	st.sealIfLarge(s.commitBytes)
	return r
}

// ApplyConf applies a configuration change. conf is raft's new configuration. change is what the
// entry changes in the registry and the cluster version; nil means nothing. An entry that is applied
// already changes nothing.
//
// Package restore passes a nil conf: it applies the log of a data directory without raft, for a new
// cluster with a configuration of its own.
func (s *Store) ApplyConf(index, term uint64, conf *raftpb.ConfState, change *MemberChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state.Load()
	if index <= st.applied.Load() {
		return
	}
	st.term = term
	if conf != nil {
		st.conf = proto.CloneOf(conf) // raft keeps using its own
	}
	if change != nil {
		// The registry is replaced, since readers may hold the old one.
		st.members.Store(st.members.Load().change(change))
		// The cluster version never decreases.
		st.clusterVersion.Store(max(st.clusterVersion.Load(), change.ClusterVersion))
	}
	st.applied.Store(index)
}

// applyLocked executes c, unless c requires another term. A leader sets RequiredTerm for commands
// that only it may run, but such a command may be appended under a later leader. The revocation of
// an expired TTL lease is then out of date, because the new leader counts the lease's time anew.
func (s *Store) applyLocked(st *state, index, term uint64, c *Command) Result {
	r := Result{ID: c.ID, Command: c}
	switch {
	case c.RequiredTerm != 0 && c.RequiredTerm != term:
		r.Err = ErrFenced
	case c.Register != nil:
		// A member registers its own name and URLs.
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

// requestLocked executes a request of etcd's API. A request that this
// version does not know changes nothing.
func (s *Store) requestLocked(st *state, index uint64, c *Command) (proto.Message, error) {
	switch r := c.Request; {
	case r.GetRange() != nil:
		// kvnode's own reads through the log are empty commands, but a range may be proposed. It has no
		// context: a cancelled client is known to one member only.
		s.ops.add(&Ops{Ranges: 1})
		return st.view().rangeKeys(context.Background(), r.GetRange())
	case r.GetPut() != nil:
		return runTransaction(s, st, (*transaction).put, r.GetPut())
	case r.GetDeleteRange() != nil:
		return runTransaction(s, st, (*transaction).deleteRange, r.GetDeleteRange())
	case r.GetTxn() != nil:
		return runTransaction(s, st, (*transaction).txn, r.GetTxn()) // all at one revision, or nothing
	case r.GetCompaction() != nil:
		return s.compactLocked(st, r.GetCompaction())
	case r.GetAlarm() != nil:
		return st.alarm(r.GetAlarm()), nil
	// Only entries start and end TTL leases. The leader proposes to revoke an expired lease.
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

// checkAllowed returns an error if an active alarm, or the cluster version, forbids c. The check is part of
// applying, not of proposing, so all members decide alike.
func (st *state) checkAllowed(c *Command) error {
	r := c.Request
	switch {
	case c.RequiredTerm != 0 && c.Generations == nil && st.clusterVersion.Load() >= ClusterVersionGenerations && (r.GetLeaseRevoke() != nil || r.GetLeaseCheckpoint() != nil):
		return ErrNoGeneration // the proposing leader had not applied the new cluster version
	case len(*st.alarms.Load()) == 0:
		return nil
	// CORRUPT comes before NOSPACE, as in etcd, since it also refuses deletions.
	case st.raised(pb.AlarmType_CORRUPT) && corruptRefuses(r):
		return rpctypes.ErrGRPCCorrupt
	case st.raised(pb.AlarmType_NOSPACE) && noSpaceRefuses(r):
		return rpctypes.ErrGRPCNoSpace
	default:
		return nil
	}
}

// corruptRefuses reports whether CORRUPT refuses r. Members may hold different keys, so a response
// from one member, or a comparison in a transaction, means nothing. Alarm requests are allowed,
// since one of them clears the alarm.
func corruptRefuses(r *pb.InternalRaftRequest) bool {
	return r.GetRange() != nil || r.GetPut() != nil || r.GetDeleteRange() != nil || r.GetTxn() != nil ||
		r.GetCompaction() != nil || r.GetLeaseGrant() != nil || r.GetLeaseRevoke() != nil
}

// noSpaceRefuses reports whether NOSPACE refuses r: a put, a lease grant, or a transaction with a put in any
// branch. Deletions, compactions and revocations are allowed, because they free space.
func noSpaceRefuses(r *pb.InternalRaftRequest) bool {
	return r.GetPut() != nil || r.GetLeaseGrant() != nil || !EveryOp(r.GetTxn(), func(op *pb.RequestOp) bool { return op.GetRequestPut() == nil })
}

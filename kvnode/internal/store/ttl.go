package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// MaxTTL is the longest TTL in seconds, as in etcd.
const MaxTTL = 9_000_000_000

// TTLLease is a lease that a client was granted, and that keys can be attached to. The store has no
// clock: the leader counts the time (package ttl) and proposes the revocation.
type TTLLease struct {
	ID int64
	// TTL is the granted time in seconds, at least 1.
	TTL int64
	// Remaining is the time in seconds that a new leader starts from, as of the last lease
	// checkpoint. 0 means TTL.
	Remaining int64
	// Generation is the index of the entry that granted the lease, and not a count of grants. It
	// tells the lease from others with the same ID. It is 0 for a lease that was granted before
	// ClusterVersionGenerations.
	Generation uint64
}

// Left returns the time in seconds that a new leader starts from.
func (l TTLLease) Left() int64 {
	if l.Remaining > 0 {
		return min(l.Remaining, l.TTL)
	}
	return l.TTL
}

// TTLLease returns the TTL lease with that ID, and whether it exists.
func (s *Store) TTLLease(id int64) (TTLLease, bool) {
	x := s.state.Load().leases
	x.mu.RLock()
	defer x.mu.RUnlock()
	a := x.all[id]
	if a == nil {
		return TTLLease{}, false
	}
	return a.TTLLease, true
}

// TTLLeases returns all TTL leases in the order of IDs.
func (s *Store) TTLLeases() []TTLLease {
	x := s.state.Load().leases
	x.mu.RLock()
	all := make([]TTLLease, 0, len(x.all))
	for _, a := range x.all {
		all = append(all, a.TTLLease)
	}
	x.mu.RUnlock()
	slices.SortFunc(all, func(a, b TTLLease) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// CountTTLLeases returns the number of TTL leases.
func (s *Store) CountTTLLeases() int {
	x := s.state.Load().leases
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.all)
}

// TTLKeys returns the keys of a TTL lease in order.
func (s *Store) TTLKeys(id int64) [][]byte {
	x := s.state.Load().leases
	x.mu.RLock()
	defer x.mu.RUnlock()
	var keys [][]byte
	for _, k := range x.all[id].sortedKeys() {
		keys = append(keys, []byte(k))
	}
	return keys
}

// leases holds the TTL leases of a state. The applying goroutine changes them.
type leases struct {
	mu  sync.RWMutex
	all map[int64]*attached // under mu
}

// attached is a TTL lease with its keys. Invariant: a key is in keys if and only if its newest
// version is live and names the lease.
type attached struct {
	TTLLease
	keys map[string]struct{} // shared with the chains
}

func newLeases() *leases { return &leases{all: make(map[int64]*attached)} }

func (a *attached) sortedKeys() []string {
	if a == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(a.keys))
}

func (x *leases) has(id int64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.all[id] != nil
}

// set adds a TTL lease, or replaces the one with the same ID and keeps its keys.
func (x *leases) set(l TTLLease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.all[l.ID]; a != nil {
		a.TTLLease = l
		return
	}
	x.all[l.ID] = &attached{TTLLease: l, keys: make(map[string]struct{})}
}

// remove deletes a TTL lease and returns its keys. They are sorted, because all members must delete
// them in the same order.
func (x *leases) remove(id int64) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := x.all[id].sortedKeys()
	delete(x.all, id)
	return keys
}

// reattach moves the key of v from the lease of prev, the live version before it, to its own.
func (x *leases) reattach(prev, v *Version) {
	from, to := prev.GetTTLLease(), v.lease // 0 for a tombstone
	if from == to {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	key := keyString(v.GetKey())
	// A lease that is missing was revoked: by this revision or, while a checkpoint is loaded, by a
	// later one. 0 is no lease.
	if a := x.all[from]; a != nil {
		delete(a.keys, key)
	}
	if a := x.all[to]; a != nil {
		a.keys[key] = struct{}{}
	}
}

// grantLease adds a TTL lease. The proposer has chosen its ID and raised a TTL that is too short.
func (s *Store) grantLease(st *state, index uint64, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	switch {
	case r.GetID() == 0:
		return nil, rpctypes.ErrGRPCLeaseNotFound
	case r.GetTTL() > MaxTTL:
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	case st.leases.has(r.GetID()):
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	l := TTLLease{ID: r.GetID(), TTL: max(r.GetTTL(), 1)}
	if st.clusterVersion.Load() >= ClusterVersionGenerations {
		l.Generation = index
	}
	st.leases.set(l)
	s.leaseChanged(st, l)
	return &pb.LeaseGrantResponse{Header: st.header(), ID: l.ID, TTL: l.TTL}, nil
}

// revokeLease removes a TTL lease and deletes its keys, in one revision.
func (s *Store) revokeLease(st *state, c *Command) (proto.Message, error) {
	r := c.Request.GetLeaseRevoke()
	if l, ok := s.TTLLease(r.GetID()); !ok || !c.matchesLease(0, l) {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	// The lease goes first: a reader that no longer sees its keys does not see the lease either.
	keys := st.leases.remove(r.GetID())
	resp, err := runTransaction(s, st, func(w *transaction, _ *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
		// Each key exists: reattach removes a key from its lease together with the version
		// that deletes or moves it.
		for _, key := range keys {
			w.ops.Deletes++
			w.prepend(w.st.index.find([]byte(key)), &Version{})
		}
		return &pb.LeaseRevokeResponse{Header: w.header()}, nil
	}, r)
	s.leaseChanged(st, TTLLease{ID: r.GetID()})
	return resp, err
}

// checkpointLeases stores the remaining time of TTL leases. It skips leases that are gone. The
// remaining time is at most the TTL, or a lease could outlive its grant under the next leader.
func (s *Store) checkpointLeases(st *state, c *Command) *pb.LeaseCheckpointResponse {
	for i, left := range c.Request.GetLeaseCheckpoint().GetCheckpoints() {
		l, ok := s.TTLLease(left.GetID())
		if !ok || !c.matchesLease(i, l) {
			continue
		}
		l.Remaining = min(max(left.GetRemaining_TTL(), 0), l.TTL)
		st.leases.set(l)
		st.unsealed.setLease(l)
	}
	return &pb.LeaseCheckpointResponse{Header: st.header()}
}

// leaseChanged passes l to the next checkpoint and to TTLEvents. A TTL of 0 means that the lease is
// gone.
func (s *Store) leaseChanged(st *state, l TTLLease) {
	st.unsealed.setLease(l)
	if s.ttlEvents != nil {
		s.ttlEvents(l)
	}
}

func (st *state) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{Revision: st.revision.Load()}
}

// A TTL lease is a record, too. Its key is revision 0, which no version has, and the ID, so leases
// come before all versions. Its value has the header of a record, TTL and remaining seconds as
// varints, and the generation as a uvarint unless it is 0.
const recordLease = 2

func isLeaseKey(key []byte) bool {
	return len(key) == recordKeySize && binary.BigEndian.Uint64(key) == 0
}

func leaseKey(id int64) []byte {
	key := make([]byte, recordKeySize)
	binary.BigEndian.PutUint64(key[8:], uint64(id))
	return key
}

func leaseValue(key []byte, l TTLLease) []byte {
	buf := make([]byte, recordHead, recordHead+3*binary.MaxVarintLen64)
	buf[4] = recordLease
	buf = binary.AppendVarint(buf, l.TTL)
	buf = binary.AppendVarint(buf, l.Remaining)
	if l.Generation != 0 {
		buf = binary.AppendUvarint(buf, l.Generation)
	}
	binary.BigEndian.PutUint32(buf, recordSum(key, buf))
	return buf
}

// decodeLease is the reverse of leaseKey and leaseValue.
func decodeLease(key, value []byte) (TTLLease, error) {
	if err := checkRecord(key, value); err != nil {
		return TTLLease{}, err
	}
	l := TTLLease{ID: int64(binary.BigEndian.Uint64(key[8:]))}
	rest := value[recordHead:]
	for _, field := range []*int64{&l.TTL, &l.Remaining} {
		x, n := binary.Varint(rest)
		if n <= 0 {
			return TTLLease{}, fmt.Errorf("%w: record of TTL lease %x has %d bytes", ErrDamaged, uint64(l.ID), len(value))
		}
		*field, rest = x, rest[n:]
	}
	if len(rest) > 0 {
		x, n := binary.Uvarint(rest)
		if n <= 0 || x == 0 {
			return TTLLease{}, fmt.Errorf("%w: record of TTL lease %x has an invalid generation", ErrDamaged, uint64(l.ID))
		}
		l.Generation, rest = x, rest[n:]
	}
	if value[4] != recordLease || len(rest) > 0 || l.ID == 0 || l.TTL < 1 || l.TTL > MaxTTL || l.Remaining < 0 || l.Remaining > l.TTL {
		return TTLLease{}, fmt.Errorf("%w: record of TTL lease %x holds kind %d, TTL %d, remaining %d and %d bytes too many",
			ErrDamaged, uint64(l.ID), value[4], l.TTL, l.Remaining, len(rest))
	}
	return l, nil
}

// setLease adds l to the next checkpoint. A TTL of 0 deletes its record.
func (u *changes) setLease(l TTLLease) {
	if u.leases == nil {
		u.leases = make(map[int64]TTLLease)
	}
	u.leases[l.ID] = l
}

// saveLeases writes TTL leases to a checkpoint. It calls replaced with the old value of each
// record. It writes in the order of keys: bbolt collects the new records of a transaction in one
// sorted leaf, and each record out of order moves those behind it.
func saveLeases(tx Tx, m *meta, changed map[int64]TTLLease, replaced func(old []byte)) error {
	ids := slices.Collect(maps.Keys(changed))
	slices.SortFunc(ids, func(a, b int64) int { return cmp.Compare(uint64(a), uint64(b)) })
	for _, id := range ids {
		l := changed[id]
		key := leaseKey(id)
		replaced(tx.Record(key))
		if l.TTL == 0 {
			if err := tx.DeleteRecord(key); err != nil {
				return fmt.Errorf("delete TTL lease %x: %w", uint64(id), err)
			}
			continue
		}
		value := leaseValue(key, l)
		if err := tx.SetRecord(key, value); err != nil {
			return fmt.Errorf("write TTL lease %x: %w", uint64(id), err)
		}
		m.Records++
		m.Sum += uint64(binary.BigEndian.Uint32(value))
	}
	return nil
}

// addLease loads the record of a TTL lease.
func (l *loader) addLease(key, value []byte) error {
	one, err := decodeLease(key, value)
	if err != nil {
		return err
	}
	if one.Generation > l.meta.Index {
		return fmt.Errorf("%w: record of TTL lease %x has generation %d, above the newest index, %d", ErrDamaged, uint64(one.ID), one.Generation, l.meta.Index)
	}
	l.records++
	l.sum += uint64(binary.BigEndian.Uint32(value))
	l.st.leases.set(one)
	return nil
}

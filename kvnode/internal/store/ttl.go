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

// MaxTTL is the longest TTL in seconds, etcd's own.
const MaxTTL = 9_000_000_000

// TTLLease is one of those that clients are granted, and attach keys to.
// When it ends is not for the store to say: it has no clock. The leader counts
// the time and proposes to revoke it.
type TTLLease struct {
	ID int64
	// TTL is what was granted, in seconds, at least 1.
	TTL int64
	// Remaining is what a new leader starts from: 0 means TTL, else what was left
	// when a leader last said so.
	Remaining int64
	// Grant is the index of the entry that made it, which no other TTL lease has. It
	// is 0 for one that was made before FormatGrants.
	Grant uint64
}

// Left returns the seconds that a new leader gives the TTL lease.
func (l TTLLease) Left() int64 {
	if l.Remaining > 0 {
		return min(l.Remaining, l.TTL)
	}
	return l.TTL
}

// TTLLease returns the TTL lease with that ID, and whether there is one.
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

// TTLLeases returns all TTL leases by ID.
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

// CountTTLLeases returns how many TTL leases there are.
func (s *Store) CountTTLLeases() int {
	x := s.state.Load().leases
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.all)
}

// TTLKeys returns the keys that are attached to a TTL lease, in order.
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

// leases are the TTL leases of a state. The goroutine that applies changes them.
type leases struct {
	mu  sync.RWMutex
	all map[int64]*attached // under mu
}

// attached is a TTL lease and its keys. Invariant: they are the keys whose newest
// version is live and names it.
type attached struct {
	TTLLease
	keys map[string]struct{} // the chains' own keys
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

// set makes a TTL lease, or gives one that is there another time that is left. Its keys stay.
func (x *leases) set(l TTLLease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.all[l.ID]; a != nil {
		a.TTLLease = l
		return
	}
	x.all[l.ID] = &attached{TTLLease: l, keys: make(map[string]struct{})}
}

// remove forgets a TTL lease, and returns its keys in order: members must delete them
// alike.
func (x *leases) remove(id int64) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := x.all[id].sortedKeys()
	delete(x.all, id)
	return keys
}

// move makes the key of v follow it from the TTL lease of prev, the live version
// before, if there is one.
func (x *leases) reattach(prev, v *Version) {
	from, to := prev.GetTTLLease(), v.lease // 0 for a tombstone
	if from == to {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	key := keyString(v.GetKey())
	// A TTL lease that is not there was revoked by this very revision, or, where a
	// checkpoint is loaded, by a later one.
	if a := x.all[from]; a != nil {
		delete(a.keys, key)
	}
	if a := x.all[to]; a != nil {
		a.keys[key] = struct{}{}
	}
}

// grant makes a TTL lease. Its ID was picked, and a TTL that is too short was
// lengthened, before the request was proposed.
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
	if st.format.Load() >= FormatGrants {
		l.Grant = index
	}
	st.leases.set(l)
	s.leaseChanged(st, l)
	return &pb.LeaseGrantResponse{Header: st.header(), ID: l.ID, TTL: l.TTL}, nil
}

// revoke ends a TTL lease and deletes its keys, in one revision.
func (s *Store) revokeLease(st *state, c *Command) (proto.Message, error) {
	r := c.Request.GetLeaseRevoke()
	if l, ok := s.TTLLease(r.GetID()); !ok || !c.matchesLease(0, l) {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	// The TTL lease goes first: nobody finds it once its keys are seen to be gone.
	keys := st.leases.remove(r.GetID())
	resp, err := write(s, st, func(w *writer, _ *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
		// Each is found, and live: move takes a key from its TTL lease with the version that
		// deletes it, or gives it to another one.
		for _, key := range keys {
			w.ops.Deletes++
			w.prepend(w.st.index.find([]byte(key)), &Version{})
		}
		return &pb.LeaseRevokeResponse{Header: w.header()}, nil
	}, r)
	s.leaseChanged(st, TTLLease{ID: r.GetID()})
	return resp, err
}

// remember notes how much time is left of TTL leases. Those that have gone meanwhile
// are skipped. What is left is at most the TTL, whatever a leader has counted: the next leader
// begins with it, and the TTL lease would last longer than was granted.
func (s *Store) checkpointLeases(st *state, c *Command) *pb.LeaseCheckpointResponse {
	for i, left := range c.Request.GetLeaseCheckpoint().GetCheckpoints() {
		l, ok := s.TTLLease(left.GetID())
		if !ok || !c.matchesLease(i, l) {
			continue
		}
		l.Remaining = min(max(left.GetRemaining_TTL(), 0), l.TTL)
		st.leases.set(l)
		st.unsaved.setLease(l)
	}
	return &pb.LeaseCheckpointResponse{Header: st.header()}
}

// leaseChanged tells the next checkpoint, and who counts the time, of l; its TTL
// is 0 if it is gone.
func (s *Store) leaseChanged(st *state, l TTLLease) {
	st.unsaved.setLease(l)
	if s.ttlEvents != nil {
		s.ttlEvents(l)
	}
}

func (st *state) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{Revision: st.revision.Load()}
}

// A TTL lease is a record, too. Its key is that of revision 0, which no version
// has, and the ID: TTL leases come before all versions. Its value is that of a
// record with TTL and remaining seconds as varints, and the index of the grant as a
// uvarint unless it is 0, as it always is before FormatGrants.
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
	if l.Grant != 0 {
		buf = binary.AppendUvarint(buf, l.Grant)
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
			return TTLLease{}, fmt.Errorf("%w: record of TTL lease %x names no grant", ErrDamaged, uint64(l.ID))
		}
		l.Grant, rest = x, rest[n:]
	}
	if value[4] != recordLease || len(rest) > 0 || l.ID == 0 || l.TTL < 1 || l.TTL > MaxTTL || l.Remaining < 0 || l.Remaining > l.TTL {
		return TTLLease{}, fmt.Errorf("%w: record of TTL lease %x holds kind %d, TTL %d, remaining %d and %d bytes too many",
			ErrDamaged, uint64(l.ID), value[4], l.TTL, l.Remaining, len(rest))
	}
	return l, nil
}

// setLease notes what the next checkpoint says of l: that it is gone if its TTL
// is 0.
func (u *unsaved) setLease(l TTLLease) {
	if u.leases == nil {
		u.leases = make(map[int64]TTLLease)
	}
	u.leases[l.ID] = l
}

// saveLeases writes TTL leases to a checkpoint. replaced is called with what each record was
// before. It writes in the order of the records: bbolt keeps what a transaction adds in one
// sorted leaf, where each record out of order moves those behind it.
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

// addLease adds the record of a TTL lease to a state that nobody sees yet.
func (l *loader) addLease(key, value []byte) error {
	one, err := decodeLease(key, value)
	if err != nil {
		return err
	}
	if one.Grant > l.meta.Index {
		return fmt.Errorf("%w: record of TTL lease %x names a grant of index %d above the newest, %d", ErrDamaged, uint64(one.ID), one.Grant, l.meta.Index)
	}
	l.records++
	l.sum += uint64(binary.BigEndian.Uint32(value))
	l.st.leases.set(one)
	return nil
}

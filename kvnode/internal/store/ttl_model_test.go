package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// ttlModel is the simplest specification of TTL leases: which exist, and which one each key names.
type ttlModel struct {
	leases map[int64]*store.TTLLease
	of     map[string]int64 // existing keys; 0: no lease
	raised bool             // the cluster version is ClusterVersionNewest
}

func (m *ttlModel) String() string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(m.leases)) {
		var keys [][]byte
		for _, k := range slices.Sorted(maps.Keys(m.of)) {
			if m.of[k] == id {
				keys = append(keys, []byte(k))
			}
		}
		l := m.leases[id]
		out = append(out, fmt.Sprintf("%d of %d: %d, %d left, %q", id, l.Generation, l.TTL, l.Left(), keys))
	}
	return fmt.Sprint(out)
}

// means reports whether c is about the existing lease with that ID.
func (m *ttlModel) means(c *store.Command, id int64) bool {
	l := m.leases[id]
	if l == nil || c.Generations == nil {
		return l != nil
	}
	return c.Generations[0] == l.Generation
}

// isUngranted reports whether c comes from a leader that does not name generations, although it
// must.
func (m *ttlModel) isUngranted(c *store.Command) bool {
	return c.Generations == nil && m.raised && c.RequiredTerm != 0 && (c.Request.GetLeaseRevoke() != nil || c.Request.GetLeaseCheckpoint() != nil)
}

// apply returns the expected error.
func (m *ttlModel) apply(index int, c *store.Command) error {
	r := c.Request
	switch {
	case c.Generations != nil && !m.raised:
		return store.ErrMalformed
	case m.isUngranted(c):
		return store.ErrNoGeneration
	case r.GetLeaseGrant() != nil:
		return m.grant(index, r.GetLeaseGrant())
	case r.GetLeaseRevoke() != nil:
		id := r.GetLeaseRevoke().GetID()
		if !m.means(c, id) {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		delete(m.leases, id)
		maps.DeleteFunc(m.of, func(_ string, of int64) bool { return of == id })
	case r.GetLeaseCheckpoint() != nil:
		one := r.GetLeaseCheckpoint().GetCheckpoints()[0]
		if l := m.leases[one.GetID()]; m.means(c, one.GetID()) {
			l.Remaining = min(one.GetRemaining_TTL(), l.TTL)
		}
	case r.GetDeleteRange() != nil:
		delete(m.of, string(r.GetDeleteRange().GetKey()))
	case r.GetPut() != nil:
		return m.put(m.of, r.GetPut())
	case r.GetTxn() != nil:
		return m.txn(r.GetTxn().GetSuccess())
	}
	return nil
}

func (m *ttlModel) grant(index int, g *pb.LeaseGrantRequest) error {
	if m.leases[g.GetID()] != nil {
		return rpctypes.ErrGRPCLeaseExist
	}
	m.leases[g.GetID()] = &store.TTLLease{ID: g.GetID(), TTL: g.GetTTL()}
	if m.raised {
		m.leases[g.GetID()].Generation = uint64(index)
	}
	return nil
}

// txn executes all of ops or none.
func (m *ttlModel) txn(ops []*pb.RequestOp) error {
	next := maps.Clone(m.of)
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			delete(next, string(d.GetKey()))
			continue
		}
		if err := m.put(next, op.GetRequestPut()); err != nil {
			return err
		}
	}
	m.of = next
	return nil
}

func (m *ttlModel) put(of map[string]int64, p *pb.PutRequest) error {
	old, ok := of[string(p.GetKey())]
	switch {
	case p.GetLease() != 0 && m.leases[p.GetLease()] == nil:
		return rpctypes.ErrGRPCLeaseNotFound
	case p.GetIgnoreLease() && !ok:
		return rpctypes.ErrGRPCKeyNotFound
	case p.GetIgnoreLease():
		of[string(p.GetKey())] = old
	default:
		of[string(p.GetKey())] = p.GetLease()
	}
	return nil
}

// draw returns the generation of an existing lease, or another number.
func (m *ttlModel) draw(t *rapid.T) uint64 {
	generations := []uint64{0, 1}
	for _, id := range slices.Sorted(maps.Keys(m.leases)) {
		generations = append(generations, m.leases[id].Generation)
	}
	return rapid.SampledFrom(generations).Draw(t, "grant")
}

var (
	genID     = rapid.Int64Range(1, 4)
	genTTLPut = rapid.Custom(func(t *rapid.T) *pb.PutRequest {
		p := &pb.PutRequest{Key: []byte(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key"))}
		switch rapid.IntRange(0, 5).Draw(t, "how") {
		case 0:
			p.IgnoreLease = true
		case 1:
		default:
			p.Lease = genID.Draw(t, "lease")
		}
		return p
	})
	genTTLRequest = rapid.Custom(func(t *rapid.T) *pb.InternalRaftRequest {
		id := genID.Draw(t, "id")
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0, 1:
			return grant(id, rapid.Int64Range(1, 20).Draw(t, "TTL"))
		case 2:
			return revoke(id)
		case 3:
			return remember(id, rapid.Int64Range(0, 30).Draw(t, "remaining"))
		case 4:
			return del(string(genTTLPut.Draw(t, "put").GetKey()), "")
		case 5, 6:
			puts := rapid.SliceOfNDistinct(genTTLPut, 1, 3, func(p *pb.PutRequest) string { return string(p.GetKey()) }).Draw(t, "puts")
			var ops []*pb.RequestOp
			for _, p := range puts {
				ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}})
				if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
					ops = append(ops, opDelete(string(p.GetKey()), ""))
				}
			}
			return txn(&pb.TxnRequest{Success: ops})
		default:
			return &pb.InternalRaftRequest{Put: genTTLPut.Draw(t, "put")}
		}
	})
)

// A store with checkpoints, restarts and restores, and one without, behave as the model.
func TestTTLLeasesDoWhatTheModelDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		disk := storetest.NewDisk()
		m := &ttlModel{leases: map[int64]*store.TTLLease{}, of: map[string]int64{}}
		c := &cluster{
			t: rt, s: openStore(rt, disk.Open()), other: openStore(rt, newBackend()),
			reopen: func() *store.Store { return openStore(rt, disk.Open()) }, dir: t.TempDir(),
		}
		defer func() {
			shut(rt, c.s)
			shut(rt, c.other)
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"apply": func(*rapid.T) {
				one := &store.Command{Request: genTTLRequest.Draw(rt, "request"), RequiredTerm: rapid.Uint64Range(0, 1).Draw(rt, "required term")}
				if rapid.Bool().Draw(rt, "with generations") {
					one.Generations = []uint64{m.draw(rt)}
				}
				data := encode(rt, one)
				c.log = append(c.log, data)
				want := m.apply(len(c.log), one)
				for _, s := range []*store.Store{c.s, c.other} {
					if got := s.Apply(uint64(len(c.log)), 1, data); !errors.Is(got.Err, want) {
						rt.Fatalf("Apply(%+v) = %v, want %v", one, got.Err, want)
					}
				}
			},
			"raise": func(*rapid.T) {
				c.log = append(c.log, raising)
				m.raised = true
				for _, s := range []*store.Store{c.s, c.other} {
					applyEntry(s, uint64(len(c.log)), raising)
				}
			},
			"checkpoint": func(*rapid.T) { checkpoint(rt, c.s) },
			"failed checkpoint": func(*rapid.T) {
				failed := false
				disk.Fail(failAt(rapid.IntRange(1, 8).Draw(rt, "step"), &failed))
				_, _ = c.s.SaveCheckpoint(nil)
				disk.Fail(nil)
			},
			"crash":    func(*rapid.T) { c.crash() },
			"snapshot": func(*rapid.T) { c.snapshot() },
			"restore":  func(*rapid.T) { c.restore() },
			"": func(*rapid.T) {
				for _, s := range []*store.Store{c.s, c.other} {
					if got, want := generationState(s), m.String(); got != want {
						rt.Fatalf("TTL leases = %s, want %s", got, want)
					}
				}
				sameHash(rt, c.other, c.s)
			},
		})
	})
}

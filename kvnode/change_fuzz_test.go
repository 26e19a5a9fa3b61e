package kvnode

import (
	"encoding/json"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// replica applies entries as a node does, without its goroutines.
type replica struct {
	t     testing.TB
	disk  *storetest.Disk
	store *store.Store
	raw   *raft.RawNode
	index uint64
}

func newReplica(t testing.TB) *replica {
	r := &replica{t: t, disk: storetest.NewDisk()}
	r.open()
	return r
}

// open begins with the newest checkpoint, as a restart does.
func (r *replica) open() {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(store.Config{Backend: r.disk.Open()}); err != nil {
		r.t.Fatal(err)
	}
	at := r.store.Durable()
	log := raft.NewMemoryStorage()
	if at.Index > 0 {
		if err := log.ApplySnapshot(at.Snapshot()); err != nil {
			r.t.Fatal(err)
		}
	}
	r.raw, err = raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: log, Applied: at.Index, MaxSizePerMsg: 1, MaxInflightMsgs: 1,
		Logger: raftLogger{slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) restart() {
	r.t.Helper()
	if _, err := r.store.SaveCheckpoint(func(uint64) error { return nil }); err != nil {
		r.t.Fatal(err)
	}
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.open()
}

// apply returns what the entry came to, and false if the member stops there.
func (r *replica) apply(e *raftpb.Entry) (store.Result, bool) {
	r.index++
	if !membership.IsConfChange(e) {
		return r.store.Apply(r.index, 1, e.GetData()), true
	}
	plan := membership.PlanEntry(r.store.Members(), e, store.ClusterVersionNewest)
	if plan.Stop != nil {
		return store.Result{}, false
	}
	r.store.ApplyConf(r.index, 1, r.raw.ApplyConfChange(plan.Raft), plan.Registry)
	return store.Result{ID: plan.Proposal, Err: plan.Refusal}, true
}

// check compares what raft and the registry take for the members.
func (r *replica) check() {
	r.t.Helper()
	status := r.raw.Status().Config
	voters, learners := []uint64{}, []uint64{}
	for id, m := range r.store.Members().ByID {
		if m.Learner {
			learners = append(learners, id)
		} else {
			voters = append(voters, id)
		}
	}
	slices.Sort(voters)
	slices.Sort(learners)
	if got := slices.Sorted(maps.Keys(status.Voters.IDs())); len(got) == 0 || !slices.Equal(got, voters) {
		r.t.Fatalf("raft's voters are %x, the registry's %x", got, voters)
	}
	if got := slices.Sorted(maps.Keys(status.Learners)); !slices.Equal(got, learners) {
		r.t.Fatalf("raft's learners are %x, the registry's %x", got, learners)
	}
}

// hostileEntries are what the fuzzer makes up: for each a kind, two bytes that choose,
// and bytes with their length before them.
func hostileEntries(data []byte) (entries []*raftpb.Entry) {
	for len(data) > 3 && len(entries) < 64 {
		kind, typ, id := data[0], raftpb.ConfChangeType(data[1]), uint64(data[2])
		b, n := protowire.ConsumeBytes(data[3:])
		if n < 0 {
			return entries
		}
		data = data[3+n:]
		e := &raftpb.Entry{Data: b}
		switch kind % 6 {
		case 0: // a command of any bytes
		case 1: // of any request
			e.Data = append([]byte{0x11 + data1(typ)*2, 1, 0}, b...)
		case 2:
			e.Type = raftpb.EntryConfChange.Enum()
		case 3:
			e.Type = raftpb.EntryConfChangeV2.Enum()
		case 4:
			e = changeEntry(typ%6, id, string(b))
		case 5:
			e = changesEntry(string(b), &raftpb.ConfChangeSingle{Type: (typ % 6).Enum(), NodeId: new(id)})
		}
		entries = append(entries, e)
	}
	return entries
}

// data1 chooses between a request and one with grants.
func data1(typ raftpb.ConfChangeType) byte { return byte(typ) & 1 }

func entrySeed(kind, typ, id byte, data []byte) []byte {
	return protowire.AppendBytes([]byte{kind, typ, id}, data)
}

// requestSeeds are requests of TTL leases, and others that change something.
func requestSeeds(f *testing.F) (data []byte) {
	for _, r := range []*pb.InternalRaftRequest{
		{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 10}},
		{Put: &pb.PutRequest{Key: []byte("a"), Value: []byte("v"), Lease: 7}},
		{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{nil, {ID: 7, Remaining_TTL: -1}}}},
		{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 7}},
		{LeaseGrant: &pb.LeaseGrantRequest{ID: -1, TTL: 1 << 62}},
		{Compaction: &pb.CompactionRequest{Revision: -1}},
		{Alarm: &pb.AlarmRequest{Action: 9, Alarm: 9}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		data = append(data, entrySeed(1, 0, 0, b)...)
		data = append(data, entrySeed(1, 1, 0, append([]byte{1, 3}, b...))...)
	}
	return data
}

// changeSeeds are the changes of the other tests, and some that members make.
func changeSeeds(f *testing.F) (data []byte) {
	all := malformed()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e, kind := all[name], byte(2)
		if e.GetType() == raftpb.EntryConfChangeV2 {
			kind = 3
		}
		data = append(data, entrySeed(kind, 0, 0, e.GetData())...)
	}
	for _, typ := range []byte{4, 5, 0, 1, 2, 3} { // the first two are unknown
		for _, id := range []byte{0, 1, 2, 3, 4, 77} {
			b, err := json.Marshal(membership.ChangeContext{Member: store.Member{PeerURLs: peerURLs("x")}, Promote: id%2 == 0})
			if err != nil {
				f.Fatal(err)
			}
			data = append(data, entrySeed(4, typ, id, b)...)
		}
	}
	return append(data, entrySeed(5, 0, 77, []byte(`{"format":2}`))...)
}

// FuzzHostileEntriesAreAppliedAlike: whatever entries are in a log, two members, one of
// which restarts from a checkpoint in between, end up with the same state, neither
// panics, and raft and the registry have the same members, at least one of them a voter.
func FuzzHostileEntriesAreAppliedAlike(f *testing.F) {
	f.Add(requestSeeds(f))
	f.Add(changeSeeds(f))
	f.Add(entrySeed(5, 0, 0, []byte(`{"format":999}`)))
	f.Add(entrySeed(0, 0, 0, []byte{0x12, 0, 0, '{', '}'}))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := newReplica(t), newReplica(t)
		defer func() { _, _ = a.store.Close(), b.store.Close() }()
		for id := range uint64(3) {
			e, err := membership.NewChangeEntry(raftpb.ConfChangeAddNode, &membership.ChangeContext{Member: store.Member{ID: id + 1, PeerURLs: peerURLs(string(rune('a' + id)))}})
			if err != nil {
				t.Fatal(err)
			}
			a.apply(e)
			b.apply(e)
		}
		entries := hostileEntries(data)
		for i, e := range entries {
			got, ok := a.apply(proto.CloneOf(e))
			want, same := b.apply(proto.CloneOf(e))
			if ok != same || got.ID != want.ID || (got.Err == nil) != (want.Err == nil) || !proto.Equal(got.Response, want.Response) {
				t.Fatalf("entry %d, %v: %+v, %v and %+v, %v", i, e, got, ok, want, same)
			}
			if !ok {
				break
			}
			if i == len(entries)/2 {
				b.restart()
			}
			a.check()
			b.check()
		}
		one, err := a.store.HashKV(0)
		two, err2 := b.store.HashKV(0)
		if err != nil || err2 != nil || one.Hash != two.Hash || a.store.ClusterVersion() != b.store.ClusterVersion() || !reflect.DeepEqual(a.store.Members(), b.store.Members()) {
			t.Fatalf("hashes %+v, %v and %+v, %v, cluster versions %d and %d, members %v and %v", one, err, two, err2, a.store.ClusterVersion(), b.store.ClusterVersion(), a.store.Members(), b.store.Members())
		}
	})
}

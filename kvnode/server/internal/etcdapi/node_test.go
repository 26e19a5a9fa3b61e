package etcdapi

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/store/watch"
	"github.com/leaderlease/go/leaderlease"
)

const (
	testCluster = 0xc1
	testMember  = 0xa1
	testTerm    = 7
)

// fakeNode is a cluster of one without a log: it applies proposals to a real store.
type fakeNode struct {
	store *store.Store
	hub   *watch.Hub
	limit int // of a command, in bytes

	// onRead and onPropose, if set, run first and may fail the request.
	onRead    func(context.Context, kvnode.ReadMode) error
	onReplay  func(context.Context) error // the same for WaitForReplay
	onPropose func(context.Context, *pb.InternalRaftRequest) error
	moved     error // what MoveLeader returns
	changes   changed
	ttl       fakeTTL

	mu struct {
		sync.Mutex
		index    uint64
		proposed []*pb.InternalRaftRequest
		modes    []kvnode.ReadMode
		changed  chan struct{}
	}
	leader  atomic.Uint64
	full    atomic.Bool // the disk
	replays atomic.Bool
	ended   atomic.Bool
	// What Stalls returns.
	loopStall, applierStall atomic.Int64
	foreign                 atomic.Bool // it is of another cluster
	hold                    atomic.Int64
	leased                  atomic.Bool           // TryRead
	saved                   atomic.Pointer[error] // CheckpointErr
	// onCheckpoint fails checkpoints.
	onCheckpoint func() error
}

// openBolt returns a real backend.
func openBolt(tb testing.TB) store.Backend {
	tb.Helper()
	backend, err := boltdb.Open(filepath.Join(tb.TempDir(), "db"))
	if err != nil {
		tb.Fatal(err)
	}
	return backend
}

func openStore(tb testing.TB, backend store.Backend) *store.Store {
	tb.Helper()
	return openStoreWith(tb, store.Config{Backend: backend})
}

func openStoreWith(tb testing.TB, cfg store.Config) *store.Store {
	tb.Helper()
	s, err := store.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// testRequestBytes is the largest request that fakeNode takes.
const testRequestBytes = 3 << 19

func newFakeNode(tb testing.TB) *fakeNode {
	tb.Helper()
	return newFakeNodeOn(tb, openBolt(tb))
}

func newFakeNodeOn(tb testing.TB, backend store.Backend) *fakeNode {
	tb.Helper()
	n := &fakeNode{hub: watch.New(), limit: testRequestBytes}
	n.store = openStoreWith(tb, store.Config{Backend: backend, Events: n.hub.Publish, Restored: n.hub.Missed})
	n.hub.Start(n.store)
	tb.Cleanup(n.hub.Close)
	n.mu.changed = make(chan struct{})
	n.leader.Store(testMember)
	n.mu.index = 1
	self := store.Member{
		ID: testMember, Name: "a", Instance: "i",
		PeerURLs: []string{"http://127.0.0.1:1"}, ClientURLs: []string{"http://127.0.0.1:2"},
	}
	n.store.ApplyConf(n.mu.index, testTerm, &raftpb.ConfState{Voters: []uint64{testMember}}, &store.MemberChange{Set: &self})
	if r := n.apply(&store.Command{Register: &self}); r.Err != nil {
		tb.Fatal(r.Err)
	}
	return n
}

func (n *fakeNode) apply(c *store.Command) store.Result {
	data, err := c.Encode()
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.index++
	return n.store.Apply(n.mu.index, testTerm, data)
}

// Propose implements Node.
func (n *fakeNode) Propose(ctx context.Context, r *pb.InternalRaftRequest) (store.Result, error) {
	if n.onPropose != nil {
		if err := n.onPropose(ctx, r); err != nil {
			return store.Result{}, err
		}
	}
	if proto.Size(r) > n.limit {
		return store.Result{}, kvnode.ErrTooLarge
	}
	n.mu.Lock()
	n.mu.proposed = append(n.mu.proposed, r)
	n.mu.Unlock()
	return n.apply(&store.Command{Request: r}), nil
}

// proposals returns how many requests have been proposed.
func (n *fakeNode) proposals() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.mu.proposed)
}

// WaitForReplay implements Node.
func (n *fakeNode) WaitForReplay(ctx context.Context) error {
	if n.onReplay != nil {
		return n.onReplay(ctx)
	}
	return nil
}

// Read implements Node.
func (n *fakeNode) Read(ctx context.Context, mode kvnode.ReadMode) (kvnode.Read, error) {
	n.mu.Lock()
	n.mu.modes = append(n.mu.modes, mode)
	n.mu.Unlock()
	if n.onRead != nil {
		if err := n.onRead(ctx, mode); err != nil {
			return kvnode.Read{}, err
		}
	}
	switch mode {
	case kvnode.ReadIndex:
		return kvnode.Read{Path: "read_index", Term: testTerm}, nil
	case kvnode.ReadLog:
		return kvnode.Read{Path: "log", Term: testTerm}, nil
	case kvnode.ReadSerializable:
		return kvnode.Read{Path: "serializable", Term: testTerm}, nil
	default:
		return kvnode.Read{Path: "lease", Remaining: 850*time.Millisecond + 1, Term: testTerm}, nil
	}
}

// TryRead implements Node.
func (n *fakeNode) TryRead() bool {
	return n.leased.Load() && (n.onRead == nil || n.onRead(context.Background(), kvnode.ReadAuto) == nil)
}

// lastMode returns the mode of the only read since the last call.
func (n *fakeNode) lastMode(t *testing.T) kvnode.ReadMode {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.mu.modes) != 1 {
		t.Fatalf("node was asked for %d reads (%v), want 1", len(n.mu.modes), n.mu.modes)
	}
	mode := n.mu.modes[0]
	n.mu.modes = nil
	return mode
}

// setLeader changes the leader; 0 means none.
func (n *fakeNode) setLeader(id uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leader.Store(id)
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
}

// LeaderChanged implements Node.
func (n *fakeNode) LeaderChanged() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.changed
}

// The rest of Node.
func (n *fakeNode) Store() *store.Store { return n.store }
func (n *fakeNode) Watch() *watch.Hub   { return n.hub }
func (n *fakeNode) Leader() uint64      { return n.leader.Load() }
func (n *fakeNode) ID() uint64          { return testMember }
func (n *fakeNode) Config() kvnode.Config {
	return kvnode.Config{MaxRequestBytes: testRequestBytes}.WithDefaults()
}

func (n *fakeNode) ClusterID() uint64 {
	if n.foreign.Load() {
		return testCluster + 1
	}
	return testCluster
}

func (n *fakeNode) Term() uint64                             { return testTerm }
func (n *fakeNode) MoveLeader(context.Context, uint64) error { return n.moved }
func (n *fakeNode) Status() kvnode.Status {
	var saved error
	if err := n.saved.Load(); err != nil {
		saved = *err
	}
	return kvnode.Status{
		CheckpointErr: saved, Replaying: n.replays.Load(),
		ID: testMember, ClusterID: testCluster, Term: testTerm, Leader: n.Leader(),
		Commit: 12, Applied: 11, DiskFull: n.full.Load(), Lease: leaderlease.Info{
			Status: leaderlease.StatusValid, Remaining: time.Second, Promise: leaderlease.PromiseInfo{Hold: time.Duration(n.hold.Load())},
		},
	}
}

// Alive implements Node.
func (n *fakeNode) Alive() error {
	if n.ended.Load() {
		return kvnode.ErrStopped
	}
	return nil
}

// Stalls implements Node.
func (n *fakeNode) Stalls() (loop, applier time.Duration) {
	return time.Duration(n.loopStall.Load()), time.Duration(n.applierStall.Load())
}

// Checkpoint implements Node.
func (n *fakeNode) Checkpoint(context.Context) error {
	if n.onCheckpoint != nil {
		if err := n.onCheckpoint(); err != nil {
			return err
		}
	}
	_, err := n.store.SaveCheckpoint(func(uint64) error { return nil })
	return err
}

// changed records the calls that change members. err is their result.
type changed struct {
	calls []string
	err   error
}

func (n *fakeNode) AddMember(_ context.Context, urls []string, learner bool) (store.Member, error) {
	n.changes.calls = append(n.changes.calls, fmt.Sprint("add ", urls, learner))
	return store.Member{ID: 77, PeerURLs: urls, Learner: learner}, n.changes.err
}

func (n *fakeNode) RemoveMember(_ context.Context, id uint64) error {
	n.changes.calls = append(n.changes.calls, fmt.Sprint("remove ", id))
	return n.changes.err
}

func (n *fakeNode) UpdateMember(_ context.Context, id uint64, urls []string) error {
	n.changes.calls = append(n.changes.calls, fmt.Sprint("update ", id, urls))
	return n.changes.err
}

func (n *fakeNode) PromoteMember(_ context.Context, id uint64) error {
	n.changes.calls = append(n.changes.calls, fmt.Sprint("promote ", id))
	return n.changes.err
}

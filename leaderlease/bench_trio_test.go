package leaderlease_test

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
)

// trio is three voters in one goroutine that hand messages to each other
// without a transport. Node 1 leads. A tick would last an hour and none is
// made, so nothing happens but what a benchmark asks for.
type trio struct {
	nodes []*trioNode
	queue []*raftpb.Message
	// sent counts messages between nodes.
	sent int
}

// trioNode is one voter; lease is nil if raft runs alone.
type trioNode struct {
	raw     *raft.RawNode
	lease   *leaderlease.Lease
	storage *raft.MemoryStorage
}

// newTrio returns a trio whose leader holds a valid lease, if filter is on.
func newTrio(tb testing.TB, c clock.Clock, filter bool) *trio {
	tb.Helper()
	t := &trio{}
	for id := range uint64(3) {
		t.nodes = append(t.nodes, newTrioNode(tb, c, id+1, filter))
	}
	t.must(tb, t.leader().raw.Campaign())
	t.pump(tb)
	if st := t.leader().raw.BasicStatus(); st.RaftState != raft.StateLeader {
		tb.Fatalf("node 1 is %v after its campaign, want leader", st.RaftState)
	}
	if filter {
		t.renew(tb)
		if _, s := t.leader().lease.TryRead(); s != leaderlease.StatusValid {
			tb.Fatalf("TryRead() after a renewal = %v, want valid", s)
		}
	}
	return t
}

func newTrioNode(tb testing.TB, c clock.Clock, id uint64, filter bool) *trioNode {
	tb.Helper()
	n := &trioNode{storage: trioStorage(tb)}
	cfg := trioConfig(id, n.storage)
	var err error
	if n.raw, err = raft.NewRawNode(cfg); err != nil {
		tb.Fatal(err)
	}
	if filter {
		n.lease, err = leaderlease.New(leaderlease.Config{Raft: cfg, TickInterval: time.Hour, Clock: c})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func trioStorage(tb testing.TB) *raft.MemoryStorage {
	tb.Helper()
	s := raft.NewMemoryStorage()
	err := s.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func trioConfig(id uint64, s raft.Storage) *raft.Config {
	return &raft.Config{
		ID: id, ElectionTick: 10, HeartbeatTick: 1, Storage: s, Applied: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
		PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		Logger: &raft.DefaultLogger{Logger: discardLog},
	}
}

func (t *trio) leader() *trioNode { return t.nodes[0] }

// renew makes one heartbeat round, the way raft does it for a ReadIndex: with
// ticks of an hour there is no other.
func (t *trio) renew(tb testing.TB) {
	tb.Helper()
	t.leader().raw.ReadIndex([]byte("benchmark"))
	t.pump(tb)
}

// pump delivers and handles everything until nothing is left to do.
func (t *trio) pump(tb testing.TB) {
	for busy := true; busy; {
		busy = false
		for _, n := range t.nodes {
			for n.raw.HasReady() {
				t.handle(tb, n)
				busy = true
			}
		}
		// Each node handles what several messages have caused at once.
		for _, m := range t.queue {
			t.deliver(tb, m)
			busy = true
		}
		t.queue = t.queue[:0]
	}
}

func (t *trio) handle(tb testing.TB, n *trioNode) {
	rd := n.raw.Ready()
	if n.lease != nil {
		n.lease.Ready(&rd)
	}
	t.must(tb, n.storage.Append(rd.Entries))
	if !raft.IsEmptyHardState(rd.HardState) {
		t.must(tb, n.storage.SetHardState(rd.HardState))
	}
	t.queue = append(t.queue, rd.Messages...)
	t.sent += len(rd.Messages)
	if last := len(rd.CommittedEntries) - 1; last >= 0 && n.lease != nil {
		n.lease.Applied(rd.CommittedEntries[last].GetIndex())
	}
	n.raw.Advance(rd)
}

func (t *trio) deliver(tb testing.TB, m *raftpb.Message) {
	n := t.nodes[m.GetTo()-1]
	if n.lease == nil || n.lease.Incoming(m, leaderlease.ProcessID{}) {
		t.must(tb, n.raw.Step(m))
	}
}

// compact keeps the logs short, so that long benchmarks do not run out of
// memory.
func (t *trio) compact(tb testing.TB) {
	for _, n := range t.nodes {
		last, err := n.storage.LastIndex()
		t.must(tb, err)
		if first, err := n.storage.FirstIndex(); err == nil && last-first > 1<<12 {
			t.must(tb, n.storage.Compact(last-1))
		}
	}
}

func (*trio) must(tb testing.TB, err error) {
	if err != nil {
		tb.Fatal(err)
	}
}

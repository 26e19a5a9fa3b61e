package leaderlease_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

var discardLog = log.New(io.Discard, "", 0)

// BenchmarkTryRead compares a lease check with what it cannot do without, one
// clock reading; with time.Now; and with the check that
// one would write at first, a mutex and time.Now. ns/op is the time that one
// goroutine needs for one operation; with op=TryRead16 one operation is one of
// 16 reads that share a check.
func BenchmarkTryRead(b *testing.B) {
	for _, c := range []clock.Clock{clock.System(), clock.Runtime()} {
		for _, goroutines := range []int{1, 2} {
			for _, op := range tryReadOps(newTrio(b, c, true).leader().lease, c) {
				name := fmt.Sprintf("clock=%s/goroutines=%d/op=%s", clock.Describe(c).Name, goroutines, op.name)
				b.Run(name, func(b *testing.B) { inParallel(b, goroutines, op.run) })
			}
		}
	}
}

// inParallel lets each goroutine do b.N operations on a core of its own.
func inParallel(b *testing.B, goroutines int, run func(n int) error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			if err := run(b.N); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// tryReadOp does n operations. The loop is inside, so that no arm pays for a
// call that the others do not.
type tryReadOp struct {
	name string
	run  func(n int) error
}

func tryReadOps(l *leaderlease.Lease, c clock.Clock) []tryReadOp {
	naive := &naiveLease{end: time.Now().Add(time.Hour)}
	return append([]tryReadOp{
		{"time.Now", func(n int) error {
			for range n {
				if time.Now().IsZero() {
					return errRefused
				}
			}
			return nil
		}},
		{"clock", func(n int) error {
			for range n {
				if c.Now() == 0 {
					return errRefused
				}
			}
			return nil
		}},
		{"mutex", func(n int) error {
			for range n {
				if _, ok := naive.tryRead(); !ok {
					return errRefused
				}
			}
			return nil
		}},
	}, leaseOps(l)...)
}

// leaseOps are the ways to ask a lease.
func leaseOps(l *leaderlease.Lease) []tryReadOp {
	return []tryReadOp{
		{"TryRead", func(n int) error {
			for range n {
				if _, s := l.TryRead(); s != core.Valid {
					return errRefused
				}
			}
			return nil
		}},
		{"TryRead16", func(n int) error {
			var index uint64
			var s core.Status
			for i := range n {
				// Fifteen of sixteen requests use the answer of the one before.
				if i%16 == 0 {
					index, s = l.TryRead()
				}
				if s != core.Valid || index == 0 {
					return errRefused
				}
			}
			return nil
		}},
		{"Read", func(n int) error {
			ctx := context.Background()
			for range n {
				if r, err := l.Read(ctx); err != nil || r.Path != leaderlease.PathLease {
					return errRefused
				}
			}
			return nil
		}},
	}
}

// errRefused means that a benchmark measured something else than it says.
var errRefused = fmt.Errorf("the lease is not valid")

// naiveLease is the lease check that one would write at first.
type naiveLease struct {
	mu    sync.RWMutex
	end   time.Time
	index uint64
}

func (l *naiveLease) tryRead() (index uint64, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.index, time.Now().Before(l.end)
}

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

// newTrio returns a trio with a leader, which holds a valid lease if filter is on.
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

// proposal is what a benchmark proposes: a small write.
var proposal = make([]byte, 128)

// BenchmarkProposal takes a proposal of 128 bytes from the leader through all
// three nodes, until all have applied it: with the filter and without. No
// disk and no network hide the filter, so this is the worst case.
// arms=interleaved runs both in turn, and is the one to quote: overhead-%
// compares the tenth percentiles of blocks of 64 proposals, because what else
// the machine does only ever adds.
func BenchmarkProposal(b *testing.B) {
	for _, filter := range []string{"off", "on"} {
		b.Run("filter="+filter, func(b *testing.B) {
			t := newTrio(b, clock.System(), filter == "on")
			sent := t.sent
			b.ReportAllocs()
			for b.Loop() {
				t.propose(b)
			}
			b.ReportMetric(float64(t.sent-sent)/float64(b.N), "msgs/op")
		})
	}
	b.Run("arms=interleaved", benchmarkProposalArms)
}

func benchmarkProposalArms(b *testing.B) {
	const block = 64
	arms := []*trio{newTrio(b, clock.System(), false), newTrio(b, clock.System(), true)}
	times := make([][]time.Duration, len(arms))
	b.ResetTimer()
	for done := 0; done < b.N || len(times[0]) < 3; done += len(arms) * block {
		for i, t := range arms {
			start := time.Now()
			for range block {
				t.propose(b)
			}
			times[i] = append(times[i], time.Since(start)/block)
		}
	}
	off, on := float64(lowest(times[0])), float64(lowest(times[1]))
	b.ReportMetric(0, "ns/op") // of both arms together it means nothing
	b.ReportMetric(off, "off-ns/op")
	b.ReportMetric(on, "on-ns/op")
	b.ReportMetric(100*(on/off-1), "overhead-%")
}

// propose makes one proposal and waits until all nodes have applied it.
func (t *trio) propose(tb testing.TB) {
	t.must(tb, t.leader().raw.Propose(proposal))
	t.pump(tb)
	t.compact(tb)
}

func lowest(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/10]
}

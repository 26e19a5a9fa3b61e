package leaderlease_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
)

// BenchmarkIdleGroups ticks the leases of many groups that nobody uses, with a
// heartbeat to and from two voters in each tick. One operation is a tick of all
// groups; ns/group-tick and B/group are one group's share of it and of the
// heap, on a node that leads them (role=leader) or follows (role=follower).
func BenchmarkIdleGroups(b *testing.B) {
	const groups = 10_000
	b.Run(fmt.Sprintf("groups=%d/role=leader", groups), func(b *testing.B) { benchmarkIdleLeaders(b, groups) })
	b.Run(fmt.Sprintf("groups=%d/role=follower", groups), func(b *testing.B) { benchmarkIdleFollowers(b, groups) })
}

func benchmarkIdleLeaders(b *testing.B, groups int) {
	leaders := newIdleGroups(b, 1, groups)
	voters := []*leaderlease.Lease{newIdleGroups(b, 2, 1)[0], newIdleGroups(b, 3, 1)[0]}
	rounds := newHeartbeatRounds(idleTerm, groups)
	// The second heartbeat is the first one's twin.
	beats := newHeartbeatRounds(idleTerm, groups)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range rounds {
			rounds[i].reset()
			beats[i].reset()
		}
		b.StartTimer()
		for i, l := range leaders {
			l.Tick()
			l.Ready(&raft.Ready{Messages: []*raftpb.Message{rounds[i].beat[0], beats[i].beat[0]}})
		}
		b.StopTimer()
		// Two voters do for all groups: each promises to the same leader.
		for _, r := range rounds {
			for i, resp := range [][]*raftpb.Message{r.first, r.second} {
				voters[i].Incoming(r.beat[0], leaderlease.ProcessID{})
				voters[i].Ready(&raft.Ready{Messages: resp})
			}
		}
		b.StartTimer()
		for i, l := range leaders {
			l.Incoming(rounds[i].first[0], leaderlease.ProcessID{})
			l.Incoming(rounds[i].second[0], leaderlease.ProcessID{})
		}
	}
	reportPerGroup(b, groups)
	for _, l := range leaders {
		if _, s := l.TryRead(); s != core.Valid {
			b.Fatalf("TryRead() of an idle group = %v, want valid", s)
		}
	}
	runtime.KeepAlive(leaders)
}

func benchmarkIdleFollowers(b *testing.B, groups int) {
	followers := newIdleGroups(b, 2, groups)
	leader := newIdleGroups(b, 1, 1)[0]
	rounds := newHeartbeatRounds(idleTerm, groups)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for _, r := range rounds {
			r.reset()
			leader.Ready(&raft.Ready{Messages: r.beat})
		}
		b.StartTimer()
		for i, l := range followers {
			l.Tick()
			l.Incoming(rounds[i].beat[0], leaderlease.ProcessID{})
			l.Ready(&raft.Ready{Messages: rounds[i].first})
		}
	}
	reportPerGroup(b, groups)
	if got := followers[0].Stats().Grants; got < uint64(b.N) {
		b.Fatalf("an idle follower gave %d grants in %d ticks", got, b.N)
	}
	runtime.KeepAlive(followers)
}

func reportPerGroup(b *testing.B, groups int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(groups), "ns/group-tick")
}

// idleTerm is the term of every idle group.
const idleTerm = 5

// newIdleGroups returns the leases of one node in n groups of the voters 1 to
// 3, which node 1 leads, and reports their size if they are many.
func newIdleGroups(b *testing.B, id uint64, n int) []*leaderlease.Lease {
	// Groups share what belongs to raft and to the embedder.
	cfg := leaderlease.Config{Raft: trioConfig(id, trioStorage(b)), TickInterval: time.Hour}
	state := raft.Ready{
		SoftState: &raft.SoftState{Lead: 1, RaftState: raft.StateFollower},
		HardState: &raftpb.HardState{Term: new(uint64(idleTerm)), Commit: new(uint64(2))},
	}
	if id == 1 {
		state.RaftState = raft.StateLeader
		state.Entries = []*raftpb.Entry{{Term: new(uint64(idleTerm)), Index: new(uint64(2))}}
		state.CommittedEntries = state.Entries
	}
	leases := make([]*leaderlease.Lease, n)
	before := heapInUse()
	for i := range leases {
		l, err := leaderlease.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		l.Ready(&state)
		leases[i] = l
	}
	if n > 1 {
		size := float64(heapInUse()-before) / float64(n)
		b.Cleanup(func() { b.ReportMetric(size, "B/group") })
	}
	return leases
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

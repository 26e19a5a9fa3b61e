package leaderlease_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// BenchmarkIdleGroups ticks the leases of many unused groups, with a
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

// BenchmarkRenewal follows a heartbeat round of three voters around: what the
// filter adds to a heartbeat (step=probe at the leader, step=promise at a
// voter) and to its acknowledgement (step=grant at the voter, at the leader
// step=first, which makes a quorum and renews the lease, and step=second, which
// comes too late to). Handling a Ready without messages (step=ready) is part of
// probe and grant. field-B is what a message grows by.
func BenchmarkRenewal(b *testing.B) {
	b.Run("step=ready", func(b *testing.B) {
		lease := newTrio(b, clock.System(), true).leader().lease
		b.ReportAllocs()
		for b.Loop() {
			lease.Ready(&raft.Ready{})
		}
	})
	for _, step := range []string{"probe", "promise", "grant", "first", "second"} {
		b.Run("step="+step, func(b *testing.B) { benchmarkStep(b, step) })
	}
}

// benchmarkStep takes rounds through their steps and the time of one of them.
func benchmarkStep(b *testing.B, step string) {
	t := newTrio(b, clock.System(), true)
	prepare, measured := t.steps(step)
	lease := t.leader().lease
	renewals := lease.Stats().Renewals
	rounds := newHeartbeatRounds(t.leader().raw.BasicStatus().GetTerm(), 1<<10)
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for left := b.N; left > 0; {
		rounds = rounds[:min(left, len(rounds))]
		for _, r := range rounds {
			r.reset()
			prepare(r)
		}
		b.StartTimer()
		for _, r := range rounds {
			measured(r)
		}
		b.StopTimer()
		left -= len(rounds)
	}
	switch step {
	case "first", "second":
		// The round of an acknowledgement renews once, whichever is measured.
		b.ReportMetric(float64(lease.Stats().Renewals-renewals)/float64(b.N), "renewals/op")
	case "probe":
		b.ReportMetric(grown(rounds[0].beat[0]), "field-B")
	case "grant":
		b.ReportMetric(grown(rounds[0].first[0]), "field-B")
	}
}

// steps returns what is measured for a step, and what has to happen before.
// Each round has a probe of its own, later than the one before.
func (t *trio) steps(step string) (prepare, measured func(heartbeatRound)) {
	leader, voter, other := t.nodes[0].lease, t.nodes[1].lease, t.nodes[2].lease
	probe := func(r heartbeatRound) { leader.Ready(&raft.Ready{Messages: r.beat}) }
	promise := func(r heartbeatRound) { voter.Incoming(r.beat[0], leaderlease.ProcessID{}) }
	grant := func(r heartbeatRound) { voter.Ready(&raft.Ready{Messages: r.first}) }
	first := func(r heartbeatRound) { leader.Incoming(r.first[0], leaderlease.ProcessID{}) }
	second := func(r heartbeatRound) { leader.Incoming(r.second[0], leaderlease.ProcessID{}) }
	switch step {
	case "probe":
		return func(heartbeatRound) {}, probe
	case "promise":
		return probe, promise
	case "grant":
		return func(heartbeatRound) {}, grant
	case "first":
		return func(r heartbeatRound) { probe(r); promise(r); grant(r) }, first
	default:
		return func(r heartbeatRound) {
			probe(r)
			promise(r)
			grant(r)
			first(r)
			other.Incoming(r.beat[0], leaderlease.ProcessID{})
			other.Ready(&raft.Ready{Messages: r.second})
		}, second
	}
}

// heartbeatRound is a heartbeat and the responses of both voters.
type heartbeatRound struct{ beat, first, second []*raftpb.Message }

func newHeartbeatRounds(term uint64, n int) []heartbeatRound {
	message := func(t raftpb.MessageType, from, to uint64) []*raftpb.Message {
		return []*raftpb.Message{{Type: t.Enum(), From: new(from), To: new(to), Term: new(term)}}
	}
	rounds := make([]heartbeatRound, n)
	for i := range rounds {
		rounds[i] = heartbeatRound{
			beat:   message(raftpb.MsgHeartbeat, 1, 2),
			first:  message(raftpb.MsgHeartbeatResp, 2, 1),
			second: message(raftpb.MsgHeartbeatResp, 3, 1),
		}
	}
	return rounds
}

// reset takes off what the filter has added.
func (r heartbeatRound) reset() {
	for _, m := range []*raftpb.Message{r.beat[0], r.first[0], r.second[0]} {
		m.ProtoReflect().SetUnknown(nil)
	}
}

// grown returns by how many bytes the filter has made m longer.
func grown(m *raftpb.Message) float64 {
	with := proto.Size(m)
	m.ProtoReflect().SetUnknown(nil)
	return float64(with - proto.Size(m))
}

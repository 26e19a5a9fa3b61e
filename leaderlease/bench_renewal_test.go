package leaderlease_test

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
)

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

package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// wantProbes checks each heartbeat that id sends, and counts them.
func (s *story) wantProbes(id uint64) *int {
	n := new(int)
	s.Net.OnSend = func(m *raftpb.Message) {
		if m.GetType() != raftpb.MsgHeartbeat || m.GetFrom() != id {
			return
		}
		*n++
		now := s.Node(id).Clock.Now()
		f, ok := leasetest.FieldOf(m)
		if !ok || f.Kind != "probe" || core.Instant(f.Values[0]) != now || time.Duration(f.Values[1]) != duration {
			s.t.Errorf("%v: heartbeat to %d carries %v, want probe sent=%v for=%v",
				s.Now(), m.GetTo(), f, time.Duration(now), duration)
		}
	}
	return n
}

// Every heartbeat of a leader carries the instant at which it left.
func TestL1EveryHeartbeatCarriesAProbe(t *testing.T) {
	s := begin(t, leasetest.Options{})
	n := s.wantProbes(1)
	s.lead(1)
	s.Run(time.Second)
	if *n < 20 {
		t.Errorf("%d heartbeats in a second, want at least 20", *n)
	}
}

// The heartbeats of a ReadIndex round carry probes, too: the read that found no
// lease brings it back, without waiting for the next tick.
func TestL1ReadIndexRoundRenewsTheLease(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(50 * ms) // between two ticks
	n := s.wantProbes(1)
	hook.Invalidate(s.Node(1).Lease())
	s.Run(ms)
	s.wantStatus(1, core.Expired)
	a := s.read(1, 7)
	s.Run(3 * ms)
	if *n != 2 {
		t.Errorf("%d heartbeats in the round, want 2", *n)
	}
	s.wantStatus(1, core.Valid)
	if !a.served() || a.path == leaderlease.PathLease {
		t.Errorf("Read() = %+v, want served by the round", *a)
	}
}

// Probes and grants ride on what raft sends anyway: the same run with and
// without the library sends the same messages and writes as often to the disk.
func TestL1NoExtraMessages(t *testing.T) {
	count := func(kind leasetest.Kind) (messages, saves int) {
		s := begin(t, leasetest.Options{
			Node: func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Kind: kind} },
			NewDisk: func(_ uint64, conf *raftpb.ConfState) leasetest.Disk {
				return countingDisk{leasetest.NewMemoryDisk(conf), &saves}
			},
		})
		s.Net.OnSend = func(*raftpb.Message) { messages++ }
		s.Node(1).Campaign()
		for range 10 {
			s.Run(time.Second)
			s.write(1, 7)
		}
		return messages, saves
	}
	messages, saves := count(leasetest.Library)
	wantMessages, wantSaves := count(leasetest.Plain)
	if messages != wantMessages || saves != wantSaves {
		t.Errorf("messages, disk writes with the library = %d, %d, want %d, %d", messages, saves, wantMessages, wantSaves)
	}
}

// countingDisk counts the writes that have something to write.
type countingDisk struct {
	leasetest.Disk
	saves *int
}

func (d countingDisk) Save(entries []*raftpb.Entry, hard *raftpb.HardState, snap *raftpb.Snapshot) error {
	if len(entries) > 0 || !raft.IsEmptyHardState(hard) || !raft.IsEmptySnap(snap) {
		*d.saves++
	}
	return d.Disk.Save(entries, hard, snap)
}

// leaderOfTerm5 returns the leader's half of node 1, which leads term 5 since start, in the given
// configuration.
func leaderOfTerm5(start core.Instant, cs *raftpb.ConfState) *core.Lease {
	l := core.NewLease(core.Params{ID: 1, Duration: duration, MaxClockSkew: skew, TransferTimeout: election})
	l.SetVoters(core.Voters(cs))
	l.Lead(5, start)
	l.OwnTermCommitted()
	return l
}

// A grant counts only if it is a promise by a voter in the leader's term, to a probe sent in it.
func TestL2CountsOnlyPromisesOfThisTerm(t *testing.T) {
	const start, now = core.Instant(1000), core.Instant(2000)
	for _, tc := range []struct {
		name       string
		from, term uint64
		sent       core.Instant
		promised   time.Duration
		wantEnd    core.Instant
	}{
		{"a promise of this term", 2, 5, 1500, duration, 1500 + core.Instant(duration)},
		{"the first instant of the term", 2, 5, start, duration, start + core.Instant(duration)},
		{"sent before the term", 2, 5, start - 1, duration, 0},
		{"sent at this very instant", 2, 5, now, duration, now + core.Instant(duration)},
		{"sent in the future", 2, 5, now + 1, duration, 0},
		{"an earlier term", 2, 4, 1500, duration, 0},
		{"a later term", 2, 6, 1500, duration, 0},
		{"not a voter", 4, 5, 1500, duration, 0},
		{"less than was asked", 2, 5, 1500, 100 * ms, 1500 + core.Instant(100*ms)},
		{"more than was asked", 2, 5, 1500, time.Hour, 1500 + core.Instant(duration)},
		{"nothing", 2, 5, 1500, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := leaderOfTerm5(start, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}})
			l.Count(tc.from, tc.term, core.Grant{Sent: tc.sent, Duration: tc.promised}, now)
			if got := l.View(now).End; got != tc.wantEnd {
				t.Errorf("View().End = %d, want %d", got, tc.wantEnd)
			}
		})
	}
}

// Answers that take long renew the lease for as little as the voters' promises
// have left, which began when the heartbeats left.
func TestL2LeaseRunsFromTheSendTime(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
	s.Run(100 * ms)
	s.Net.Cut(1, 2)
	s.Net.Cut(1, 3)
	s.Run(600 * ms)
	s.Net.Release(nil)
	s.Run(2 * ms)
	s.isolate(1)
	s.wantStatus(1, core.Valid)
	if end := s.Node(1).Lease().Info().EndsIn; end > duration-600*ms {
		t.Errorf("Info().End = %v, want at most %v", end, duration-600*ms)
	}
	s.electEarly(2, 2, 3)
}

// A grant that arrives again, or after a newer one, changes nothing.
func TestL2LateAndDuplicateGrants(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Plan = func(m *raftpb.Message) []time.Duration {
		if m.GetType() == raftpb.MsgHeartbeatResp {
			return []time.Duration{ms, 420 * ms, 50 * ms}
		}
		return []time.Duration{ms}
	}
	s.Run(2 * time.Second)
	for range 100 {
		s.Run(10 * ms)
		// The newest grant is at most a heartbeat and a round trip old.
		if end := s.Node(1).Lease().Info().EndsIn; end < duration-103*ms {
			t.Fatalf("%v: Info().End = %v, want at least %v", s.Now(), end, duration-103*ms)
		}
	}
	s.isolate(1)
	s.electEarly(2, 2, 3)
}

func ids(ids ...uint64) []uint64 { return ids }

// joined waits until the leader has applied a change, and makes a snapshot that
// its new members can start from.
func (s *story) joined(id uint64, changed func() bool) {
	s.t.Helper()
	if !s.RunUntil(election, changed) {
		s.t.Fatalf("Conf() of node %d = %v, want the change applied", id, s.Node(id).Conf())
	}
	s.Node(id).Compact()
}

// The lease ends when the promise of the last voter that a quorum needs does.
func TestL3QuorumOfPromises(t *testing.T) {
	joint := &raftpb.ConfState{Voters: ids(1, 4, 5), VotersOutgoing: ids(1, 2, 3)}
	for _, tc := range []struct {
		name    string
		cs      *raftpb.ConfState
		granted []uint64 // each with a send instant 100 later
		wantEnd core.Instant
	}{
		{"three voters, one answer", &raftpb.ConfState{Voters: ids(1, 2, 3)}, ids(2), 100},
		{"three voters, the newer answer", &raftpb.ConfState{Voters: ids(1, 2, 3)}, ids(2, 3), 200},
		{"five voters, one answer", &raftpb.ConfState{Voters: ids(1, 2, 3, 4, 5)}, ids(2), 0},
		{"five voters, two answers", &raftpb.ConfState{Voters: ids(1, 2, 3, 4, 5)}, ids(2, 3), 100},
		{"four voters, one answer", &raftpb.ConfState{Voters: ids(1, 2, 3, 4)}, ids(2), 0},
		{"two voters", &raftpb.ConfState{Voters: ids(1, 2)}, ids(2), 100},
		{"two voters, no answer", &raftpb.ConfState{Voters: ids(1, 2)}, nil, 0},
		{"learners", &raftpb.ConfState{Voters: ids(1, 2, 3), Learners: ids(4, 5)}, ids(4, 5), 0},
		{"joint, incoming half only", joint, ids(4, 5), 0},
		{"joint, outgoing half only", joint, ids(2, 3), 0},
		{"joint, both halves", joint, ids(4, 2), 100},
		{"sole voter", &raftpb.ConfState{Voters: ids(1)}, nil, core.Forever},
		{"no voters", &raftpb.ConfState{}, nil, 0},
		{"no voters but outgoing ones", &raftpb.ConfState{VotersOutgoing: ids(1)}, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := leaderOfTerm5(1, tc.cs)
			for i, id := range tc.granted {
				l.Count(id, 5, core.Grant{Sent: core.Instant(100 * (i + 1)), Duration: duration}, 1000)
			}
			want := tc.wantEnd
			if want > 0 {
				want = want.Add(duration)
			}
			if got := l.View(1000).End; got != want {
				t.Errorf("View().End = %d, want %d", got, want)
			}
		})
	}
}

// A sole voter waits for no heartbeat, and its lease does not run out.
func TestL3SoleVoterNeedsNoHeartbeat(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1)})
	s.Node(1).Campaign()
	s.Run(10 * ms)
	s.wantStatus(1, core.Valid)
	s.Net.Hold = func(*raftpb.Message) bool { return true }
	s.Run(20 * election)
	s.wantStatus(1, core.Valid)
}

// A sole voter that gets company loses its endless lease at once: the others
// can elect without it.
func TestL3SoleVoterGrows(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1), Spares: ids(2, 3)})
	s.lead(1)
	s.Node(1).Change(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(2))},
		{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(3))},
	}})
	s.joined(1, func() bool { return len(s.Node(1).Conf().GetVoters()) == 3 })
	if !s.RunUntil(election, func() bool {
		return len(s.Node(3).Conf().GetVoters()) == 3 && len(s.Node(3).Conf().GetVotersOutgoing()) == 0
	}) {
		t.Fatalf("Conf() of node 3 = %v, want voters 1 to 3", s.Node(3).Conf())
	}
	s.isolate(1)
	s.electEarly(2, 2, 3)
}

// A sole voter that grows to two depends on the other at once.
func TestL3SoleVoterGrowsToTwo(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1), Spares: ids(2)})
	s.lead(1)
	s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
	s.Node(1).Change(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(2))})
	s.RunUntil(election, func() bool { return len(s.Node(1).Conf().GetVoters()) == 2 })
	s.wantStatus(1, core.Expired)
	s.Net.Hold = nil
	s.Run(200 * ms)
	s.wantStatus(1, core.Valid)
}

// Learners answer heartbeats like everyone else. Cut off from the other voters,
// the leader does not mistake them for a quorum.
func TestL3LearnersDoNotCount(t *testing.T) {
	s := begin(t, leasetest.Options{Learners: ids(4, 5)})
	s.lead(1)
	s.Run(50 * ms)
	s.Net.Split(ids(1, 4, 5), ids(2, 3))
	s.electEarly(2, 2, 3)
}

// The leader has entered a joint configuration that nodes 2 and 3 have not
// heard of. They are a quorum of what they know, so the incoming half alone
// gives no lease.
func TestL3JointNeedsBothHalves(t *testing.T) {
	s := begin(t, leasetest.Options{Spares: ids(4, 5)})
	s.lead(1)
	s.Node(1).Change(&raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransitionJointExplicit.Enum(),
		Changes: []*raftpb.ConfChangeSingle{
			{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(4))},
			{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(5))},
			{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(2))},
			{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(3))},
		},
	})
	s.joined(1, func() bool { return len(s.Node(1).Conf().GetVotersOutgoing()) == 3 })
	s.Net.Split(ids(1, 4, 5), ids(2, 3))
	s.Run(500 * ms)
	if got := s.Node(4).Conf().GetVoters(); len(got) != 3 {
		t.Fatalf("Conf() of node 4 has voters %v, want 1, 4, 5", got)
	}
	s.electEarly(2, 2, 3)
}

// A new leader's commit index may be behind what its predecessor has
// acknowledged, until an entry of its own term is committed.
func TestL4OwnTermMustBeCommitted(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	// Node 2 stores the write, but does not learn that it is committed.
	s.Net.Hold = func(m *raftpb.Message) bool {
		return m.GetFrom() == 1 && (m.GetType() == raftpb.MsgHeartbeat || m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0)
	}
	written := s.write(1, 7)
	s.isolate(1)
	// It wins, and its heartbeats are answered, but not its appends.
	s.Net.Hold = from(2, raftpb.MsgApp)
	s.electEarly(2, 2, 3)
	s.Run(300 * ms)
	if s.Node(2).Role() != raft.StateLeader || s.Node(2).Version(7) == written {
		t.Fatalf("node 2 is %v and has version %d, want a leader that is behind %d", s.Node(2).Role(), s.Node(2).Version(7), written)
	}
	s.wantStatus(2, core.NoOwnTermCommit)
	s.Net.Hold = nil
	s.Net.Release(from(2, raftpb.MsgApp))
	s.Run(300 * ms)
	if v, st := s.Node(2).TryRead(7); v != written || st != core.Valid {
		t.Errorf("TryRead(7) = %d, %v, want %d, valid", v, st, written)
	}
}

// A leader that is demoted or removed has no lease from the moment it applies
// that, before raft makes it step down: the others elect without it.
func TestL4LeaderMustBeVoter(t *testing.T) {
	for name, change := range map[string]raftpb.ConfChangeType{
		"demoted": raftpb.ConfChangeAddLearnerNode,
		"removed": raftpb.ConfChangeRemoveNode,
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, leasetest.Options{Voters: ids(1, 2, 3, 4)})
			s.lead(1)
			s.Run(500 * ms)
			applied := false
			s.OnApply = func(n *leasetest.Node, e *raftpb.Entry, _ leasetest.Outcome) {
				if n.ID != 1 || e.GetType() != raftpb.EntryConfChange {
					return
				}
				applied = true
				if got := len(n.Conf().GetVoters()); got != 3 {
					t.Fatalf("Conf() of node 1 has %d voters, want 3", got)
				}
				s.wantStatus(1, core.NotVoter)
			}
			s.Node(1).Change(&raftpb.ConfChange{Type: change.Enum(), NodeId: new(uint64(1))})
			s.Run(10 * ms)
			if !applied {
				t.Fatal("node 1 did not apply the change")
			}
			s.wantStatus(1, core.NotLeader)
		})
	}
}

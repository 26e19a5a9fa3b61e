package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// A voter keeps its promise while the leader relies on it, even after all voters have forgotten
// their leader.
func TestV1PromiseOutlastsTheLease(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(500 * ms)
	s.isolate(1)
	s.wantStatus(1, core.Valid)
	if took := s.electEarly(2, 2, 3); took > duration+10*ms {
		t.Errorf("node 2 was elected after %v, want at most %v: a promise must end", took, duration+10*ms)
	}
}

// A second probe that asks for less does not shorten the promise.
func TestV1ShorterProbeDoesNotShortenThePromise(t *testing.T) {
	g := core.NewGuard(1, 1, time.Second, 0)
	g.Promise(1, 2, core.Probe{Sent: 10, Duration: time.Second}, core.ProcessID{}, 100)
	g.Promise(1, 2, core.Probe{Sent: 20, Duration: time.Millisecond}, core.ProcessID{}, 200)
	if last := core.Instant(100).Add(time.Second) - 1; !g.Bound(last) || g.Bound(last+1) {
		t.Errorf("Bound(%d), Bound(%d) = %v, %v, want true, false", last, last+1, g.Bound(last), g.Bound(last+1))
	}
}

// A probe that asks for more than MaxPromise gets no promise, and so no grant:
// the restart hold would not cover it.
func TestV1ProbeBeyondMaxPromiseGetsNone(t *testing.T) {
	s := begin(t, leasetest.Options{Configure: func(id uint64, cfg *leaderlease.Config) {
		if id != 1 {
			cfg.Duration, cfg.MaxPromise = 500*ms, 500*ms
		}
	}})
	s.Node(1).Campaign()
	s.Run(time.Second)
	s.wantStatus(1, core.Expired)
	for _, id := range []uint64{2, 3} {
		st := s.Node(id).Lease().Stats()
		if st.Promises != 0 || st.RefusedProbes == 0 {
			t.Errorf("node %d: Stats() = %d promises, %d refused probes, want 0 and some", id, st.Promises, st.RefusedProbes)
		}
	}
}

// A late heartbeat of a deposed leader makes no promise, and does not change the grants to the
// present leader.
func TestV1ProbeOfDeposedLeaderMakesNoPromise(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(3, raftpb.MsgHeartbeat)
	s.Run(250 * ms)
	s.isolate(1)
	s.Run(duration)
	s.Net.Hold = nil
	s.electEarly(2, 2, 3)
	s.Run(200 * ms)
	s.Net.Heal()
	before := s.Node(3).Lease().Stats().RefusedProbes
	if n := s.Net.Release(from(1, raftpb.MsgHeartbeat)); n == 0 {
		t.Fatal("Release() = 0 heartbeats of node 1, want some")
	}
	s.Run(2 * ms)
	if got := s.Node(3).Lease().Stats().RefusedProbes; got == before {
		t.Errorf("RefusedProbes = %d after the late heartbeats, want more than %d", got, before)
	}
	if p := s.Node(3).Lease().Info().Promise; p.Leader != 2 {
		t.Errorf("Info().Promise.Leader = %d, want 2", p.Leader)
	}
}

// grants counts the grants that id has sent to another node.
func (s *story) grants(id, leader uint64) *int {
	n := new(int)
	s.Net.OnSend = func(m *raftpb.Message) {
		if f, ok := leasetest.FieldOf(m); ok && f.Kind == "grant" && m.GetFrom() == id && m.GetTo() == leader {
			*n++
		}
	}
	return n
}

// strip loses the lease field of the heartbeats that id sends, as a codec that
// drops unknown fields does. Everything else arrives as usual.
func (s *story) strip(id uint64) {
	s.Net.Hold = func(m *raftpb.Message) bool {
		if m.GetFrom() == id && m.GetType() == raftpb.MsgHeartbeat {
			leasetest.StripField(m)
		}
		return false
	}
}

// A promise to one leader is not granted to another leader, which has sent no probe.
func TestV2NoGrantToAnotherLeader(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.isolate(1)
	s.strip(2)
	s.electEarly(2, 2, 3)
	n := s.grants(3, 2)
	s.Run(300 * ms)
	if *n != 0 {
		t.Errorf("node 3 sent %d grants to node 2, which asked for none, want 0", *n)
	}
}

// A promise to a leader in one term is not granted to it in another term.
func TestV2NoGrantInAnotherTerm(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(duration)
	s.bump(1, 2, 5)
	s.strip(1)
	s.Run(duration)
	s.electEarly(1, 2, 3)
	n := s.grants(3, 1)
	s.Run(300 * ms)
	if got := s.Node(1).Term(); got != 6 {
		t.Fatalf("Term() = %d, want 6", got)
	}
	if *n != 0 || s.Node(1).Valid() {
		t.Errorf("grants, Valid() = %d, %v for a promise of term 1, want 0, false", *n, s.Node(1).Valid())
	}
}

// A voter that refuses the probe still answers the heartbeat. Its answer is no grant.
func TestV2AnAnswerIsNoGrant(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.strip(1)
	s.Node(1).Campaign()
	n := s.grants(2, 1)
	s.Run(500 * ms)
	if lead := s.Leader(); lead == nil || lead.ID != 1 {
		t.Fatalf("Leader() = %+v, want node 1", lead)
	}
	if *n != 0 || s.Node(1).Valid() {
		t.Errorf("grants, Valid() = %d, %v after heartbeats without probes, want 0, false", *n, s.Node(1).Valid())
	}
}

// Both voters forget their promises, a moment after they were granted. They
// remember that they may have made some.
func TestV6RestartHoldOutlastsTheLease(t *testing.T) {
	// Without AsyncStorageWrites, WouldBlock would cover for the guard.
	for name, opts := range map[string]leasetest.NodeOptions{"sync": {}, "async": {Async: true}} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions { return opts }})
			s.lead(1)
			s.isolate(1)
			for _, id := range []uint64{2, 3} {
				s.Node(id).Crash(0)
				s.Node(id).Restart()
			}
			s.wantStatus(1, core.Valid)
			if took := s.electEarly(2, 2, 3); took > duration+20*ms {
				t.Errorf("node 2 was elected after %v, want at most %v: the hold must end", took, duration+20*ms)
			}
		})
	}
}

// A node that holds answers heartbeats and grants: the lease outlives the
// restart of every voter.
func TestV6HeldVotersGrant(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	for _, id := range []uint64{2, 3} {
		s.Node(id).Crash(0)
		s.Node(id).Restart()
	}
	before := s.Node(1).Lease().Stats().Renewals
	s.Run(500 * ms)
	if h := s.Node(2).Lease().Info().Promise.Hold; h <= 0 {
		t.Fatalf("Info().Promise.Hold = %v, want more than 0", h)
	}
	if got := s.Node(1).Lease().Stats().Renewals - before; got < 4 {
		t.Errorf("%d renewals in the restart hold, want at least 4", got)
	}
}

// The voters restart with a third of their earlier MaxPromise. The restart hold covers the saved
// promise.
func TestV6HoldCoversThePromisesOfEarlierRuns(t *testing.T) {
	restarted := false
	s := begin(t, leasetest.Options{Configure: func(id uint64, cfg *leaderlease.Config) {
		if !restarted {
			cfg.Duration, cfg.AllowLongDuration = 2700*ms, true
		}
	}})
	s.lead(1)
	restarted = true
	s.isolate(1)
	for _, id := range []uint64{2, 3} {
		s.Node(id).Crash(0)
		s.Node(id).Restart()
	}
	s.wantStatus(1, core.Valid)
	if took := s.electEarly(2, 2, 3); took < 2000*ms {
		t.Errorf("node 2 was elected after %v, want at least 2s", took)
	}
}

// A node that has never taken part has nothing to hold for: a new group elects
// at once.
func TestV6EmptyStorageDoesNotHold(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.Node(1).Campaign()
	s.Run(10 * ms)
	if s.Node(1).Role() != raft.StateLeader {
		t.Errorf("Role() = %v 10 ms after the first start, want StateLeader", s.Node(1).Role())
	}
}

// An old release names probes up to an instant. A node that has restarted does
// not know whether it has promised to a later one.
func TestV6NoReleaseLiftsTheHold(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(2, raftpb.MsgTimeoutNow)
	s.Node(1).Transfer(2)
	late := s.heldOf(to(2, raftpb.MsgTimeoutNow))
	s.Net.Cut(1, 2)
	s.Run(election + 300*ms)
	s.wantLeader(1, 1)
	s.isolate(1)
	s.Node(3).Crash(0)
	s.Node(3).Restart()
	s.hand(late)
	s.Run(50 * ms)
	if r := s.Node(2).Role(); r != raft.StateCandidate {
		t.Errorf("Role() of node 2 = %v, want StateCandidate", r)
	}
	s.disjoint()
	s.wantStatus(1, core.Valid)
}

// With AsyncStorageWrites a heartbeat may be answered before anything is
// durable. Node 3's first grant must wait: if it crashed it would find an empty
// storage, and would not hold.
func TestV6FirstGrantWaitsForTheDisk(t *testing.T) {
	s := begin(t, leasetest.Options{Node: func(id uint64) leasetest.NodeOptions {
		o := leasetest.NodeOptions{Async: true}
		if id == 3 {
			o.DiskDelay = func() time.Duration { return 3 * time.Second }
		}
		return o
	}})
	s.isolate(3)
	s.lead(1)
	s.Net.Heal()
	s.Net.Split([]uint64{2}, []uint64{1, 3})
	s.Run(duration)
	// Only node 3 answers, and its disk has not yet.
	s.wantStatus(1, core.Expired)
	s.Node(3).Crash(0)
	s.Node(3).Restart()
	if h := s.Node(3).Lease().Info().Promise.Hold; h != 0 {
		t.Fatalf("Info().Promise.Hold = %v, want 0: nothing was durable", h)
	}
	s.Net.Heal()
	s.isolate(1)
	s.campaign(300*ms, 2, 2, 3)
	s.disjoint()
}

// mixed returns a group in which node 1 asks for promises of 900 ms, as an older version does, and
// the others ask for 300 ms. A write to any disk takes delay.
func mixed(t *testing.T, delay *time.Duration) *story {
	t.Helper()
	return begin(t, leasetest.Options{
		Configure: func(id uint64, cfg *leaderlease.Config) {
			if id != 1 {
				cfg.Duration, cfg.MaxPromise = 300*ms, 900*ms
			}
		},
		Node: func(uint64) leasetest.NodeOptions {
			return leasetest.NodeOptions{Async: true, DiskDelay: func() time.Duration { return *delay }}
		},
	})
}

// crashed kills both voters and starts them again, when their promises to node 1 have
// just been made, and returns how long it takes them to elect another.
func (s *story) crashed() time.Duration {
	s.isolate(1)
	for _, id := range []uint64{2, 3} {
		s.Node(id).Crash(0)
		s.Node(id).Restart()
	}
	s.wantStatus(1, core.Valid)
	return s.electEarly(2, 2, 3)
}

// A member with a short promise grants a long one once a restart would hold for it: the
// first probe is refused, and the next one is not.
func TestV6ALongerPromiseIsSavedFirst(t *testing.T) {
	disk := time.Duration(0)
	s := mixed(t, &disk)
	s.lead(1)
	for _, id := range []uint64{2, 3} {
		st := s.Node(id).Lease()
		if got := st.Stats().RefusedProbes; got == 0 || got > 2 || st.Info().Promise.Saved != 900*ms {
			t.Errorf("node %d refused %d probes and has saved %v, want one or two, and 900ms", id, got, st.Info().Promise.Saved)
		}
	}
	if took := s.crashed(); took < 700*ms {
		t.Errorf("node 2 was elected after %v: the voters have forgotten what they promised", took)
	}
}

// While a longer promise is being saved, no promise is made, so a crash loses none.
func TestV6ACrashBeforeALongerPromiseIsSaved(t *testing.T) {
	disk := time.Duration(0)
	s := mixed(t, &disk)
	s.Node(1).Campaign()
	s.Run(50 * ms)
	if r := s.Node(1).Role(); r != raft.StateLeader {
		t.Fatalf("Role() of node 1 = %v, want StateLeader", r)
	}
	disk = time.Second
	s.Run(400 * ms)
	if s.Node(1).Valid() {
		t.Error("node 1 has a lease by promises that are not saved")
	}
	disk = 0
	for _, id := range []uint64{2, 3} {
		l := s.Node(id).Lease()
		if p := l.Info().Promise; p.Remaining > 0 || p.Saved != 300*ms || l.Stats().RefusedProbes == 0 {
			t.Errorf("node %d has promised %+v before its disk knows, and refused %d probes", id, p, l.Stats().RefusedProbes)
		}
	}
}

// The saved duration falls with the second restart after the last longer promise. The first
// restart holds for that promise.
func TestV6TheSavedPromiseFollowsThePromises(t *testing.T) {
	disk := time.Duration(0)
	s := mixed(t, &disk)
	s.lead(1)
	s.Node(1).Transfer(2)
	s.Run(100 * ms)
	s.wantLeader(2, 2)
	restarted := func(hold time.Duration) {
		t.Helper()
		s.Node(3).Crash(0)
		s.Node(3).Restart()
		if got := s.Node(3).Lease().Info().Promise; got.Hold != hold || got.Saved != hold {
			t.Fatalf("it holds for %v, and %v is saved, want %v", got.Hold, got.Saved, hold)
		}
		s.Run(hold + 100*ms)
	}
	s.Run(time.Second)
	restarted(900 * ms)
	restarted(300 * ms)
	s.Node(2).Transfer(1)
	s.Run(400 * ms)
	s.wantLeader(1, 3)
	if got := s.Node(3).Lease().Info().Promise.Saved; got != 900*ms {
		t.Fatalf("%v is saved, want 900ms, which node 1 asks for", got)
	}
	s.wantStatus(1, core.Valid)
	if took := s.crashed(); took < 700*ms {
		t.Errorf("node 2 was elected after %v: the voters have forgotten what they promised", took)
	}
}

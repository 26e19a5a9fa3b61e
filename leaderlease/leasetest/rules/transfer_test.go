package rules

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The leader gives its lease up before the MsgTimeoutNow leaves. So the new leader need not wait
// for it, even if the old one never learns of the election.
func TestL6LeaseEndsBeforeTheTransferLeaves(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.OnSend = func(m *raftpb.Message) {
		if m.GetType() != raftpb.MsgTimeoutNow {
			return
		}
		s.wantStatus(1, core.Transferring)
		if f, ok := leasetest.FieldOf(m); !ok || f.Kind != "release" {
			t.Errorf("MsgTimeoutNow carries %v, want a release", f)
		}
	}
	s.Node(1).Transfer(2)
	s.Net.Cut(2, 1)
	s.Net.Cut(3, 1)
	s.Run(20 * ms)
	if s.Node(2).Role() != raft.StateLeader {
		t.Errorf("Role() of node 2 = %v 20 ms after the transfer, want StateLeader", s.Node(2).Role())
	}
	s.disjoint()
}

// The release rides on the forced vote, and only there: node 3, bound to node 1,
// votes for node 2 at once.
func TestL6ReleaseRidesOnTheForcedVote(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	votes := 0
	s.Net.OnSend = func(m *raftpb.Message) {
		f, ok := leasetest.FieldOf(m)
		if m.GetType() == raftpb.MsgVote {
			votes++
			if !ok || f.Kind != "release" || f.Values[0] != 1 {
				t.Errorf("forced MsgVote to %d carries %v, want the release of term 1", m.GetTo(), f)
			}
		}
	}
	s.Node(1).Transfer(2)
	s.isolate(1)
	s.Net.Join(1, 2)
	s.Run(20 * ms)
	if s.Node(2).Role() != raft.StateLeader || votes == 0 {
		t.Errorf("Role() of node 2 = %v after %d votes, want StateLeader", s.Node(2).Role(), votes)
	}
}

// While a transfer can still succeed, heartbeats carry no probe: a slow
// MsgTimeoutNow must not meet voters that have promised anew.
func TestL6NoProbesWhileTransferring(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.OnSend = func(m *raftpb.Message) {
		if f, ok := leasetest.FieldOf(m); ok && f.Kind == "probe" && m.GetFrom() == 1 {
			t.Errorf("%v: a heartbeat carries %v during the transfer, want nothing", s.Now(), f)
		}
	}
	s.Net.Plan = func(m *raftpb.Message) []time.Duration {
		if m.GetType() == raftpb.MsgTimeoutNow {
			return []time.Duration{350 * ms}
		}
		return []time.Duration{ms}
	}
	s.Node(1).Transfer(2)
	s.Run(400 * ms)
	if s.Node(2).Role() != raft.StateLeader {
		t.Errorf("Role() of node 2 = %v, want StateLeader", s.Node(2).Role())
	}
}

// aborted returns a cluster in which node 1 has begun a transfer to node 2. Its MsgTimeoutNow is
// held, so that the transfer is given up.
func aborted(t *testing.T) (s *story, late *raftpb.Message) {
	t.Helper()
	s = begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(2, raftpb.MsgTimeoutNow)
	s.Node(1).Transfer(2)
	late = s.heldOf(to(2, raftpb.MsgTimeoutNow))
	s.Net.Hold = nil
	return s, late
}

// The MsgTimeoutNow arrives late, and again. Its receiver is bound by a newer probe than the release
// covers.
func TestL6LateTimeoutNowAfterAbort(t *testing.T) {
	s, late := aborted(t)
	s.Run(election + 300*ms)
	s.wantLeader(1, 1)
	s.isolate(1)
	for range 2 {
		s.hand(late)
		s.Run(5 * ms)
	}
	if r := s.Node(2).Role(); r != raft.StateFollower {
		t.Errorf("Role() of node 2 = %v, want StateFollower", r)
	}
	if s.stats(2).Withheld.TimeoutNowIn == 0 {
		t.Error("node 2 withheld no MsgTimeoutNow, want some")
	}
	s.electEarly(2, 2, 3)
}

// The transferee itself is free, and campaigns. Node 3 has promised to a newer probe than the
// release names, and keeps that promise.
func TestL6ForcedVoteMeetsANewerPromise(t *testing.T) {
	s, late := aborted(t)
	s.Net.Cut(1, 2)
	s.Run(election + 300*ms)
	s.wantLeader(1, 1)
	s.isolate(1)
	if s.Node(2).Bound() {
		t.Fatal("Bound() of node 2 = true, want false")
	}
	s.hand(late)
	s.Run(5 * ms)
	if s.stats(3).Withheld.VoteIn == 0 {
		t.Error("node 3 withheld no forced vote, want one")
	}
	s.disjoint()
	s.electEarly(2, 2, 3)
}

// A heartbeat from before the transfer arrives after the release. A promise to its probe would be
// useless, and would delay the transfer.
func TestL6LateProbeDoesNotUndoTheRelease(t *testing.T) {
	g := core.NewGuard(1, 1, duration, 0)
	g.Promise(1, 5, core.Probe{Sent: 100, Duration: duration}, core.ProcessID{}, 1000)
	g.Admit(&core.Release{Term: 5, At: 200}, 1001)
	if g.Promise(1, 5, core.Probe{Sent: 200, Duration: duration}, core.ProcessID{}, 1002) || g.Bound(1002) {
		t.Error("a probe from before the release has made a promise")
	}
	if !g.Promise(1, 5, core.Probe{Sent: 201, Duration: duration}, core.ProcessID{}, 1003) {
		t.Error("Promise() after the release = false, want true")
	}
}

// Grants of probes from before the release do not count after an abort: the
// voters that gave them may have been released.
func TestL6OldGrantsDoNotCountAfterAbort(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgHeartbeatResp || m.GetType() == raftpb.MsgTimeoutNow
	}
	s.Run(250 * ms)
	s.Node(1).Transfer(2)
	s.Net.Release(to(1, raftpb.MsgHeartbeatResp))
	s.Run(5 * ms)
	if end := s.Node(1).Lease().Info().EndsIn; end != 0 {
		t.Errorf("Info().End = %v after the release, want 0", end)
	}
}

// A release covers the promises that it names, those to earlier leaders, and no
// others.
func TestL6WhatAReleaseCovers(t *testing.T) {
	for _, tc := range []struct {
		name string
		rel  core.Release
		want bool
	}{
		{"the probe that was promised to", core.Release{Term: 5, At: 100}, true},
		{"a later instant", core.Release{Term: 5, At: 101}, true},
		{"an earlier instant", core.Release{Term: 5, At: 99}, false},
		{"a later term, whatever its instant", core.Release{Term: 6, At: 1}, true},
		{"an earlier term", core.Release{Term: 4, At: 101}, false},
		{"nothing", core.Release{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := core.NewGuard(1, 1, duration, 0)
			if !g.Promise(1, 5, core.Probe{Sent: 100, Duration: duration}, core.ProcessID{}, 1000) {
				t.Fatal("Promise() = false, want true")
			}
			if got := g.Admit(&tc.rel, 1001); got != tc.want {
				t.Errorf("Admit(%+v) = %v, want %v", tc.rel, got, tc.want)
			}
		})
	}
}

// A forced vote makes the leader step down and vote in one Ready. When the vote
// leaves, no reader passes the old lease any more.
func TestL7StepDownIsSeenBeforeTheVoteLeaves(t *testing.T) {
	s, late := aborted(t)
	s.Net.Cut(1, 2)
	s.Run(election + 300*ms)
	s.wantLeader(1, 1)
	s.Net.Join(1, 2)
	votes := 0
	s.Net.OnSend = func(m *raftpb.Message) {
		if m.GetType() == raftpb.MsgVoteResp && m.GetFrom() == 1 && !m.GetReject() {
			votes++
			s.wantStatus(1, core.NotLeader)
		}
	}
	s.hand(late)
	s.Run(5 * ms)
	if votes == 0 {
		t.Fatal("node 1 granted no vote")
	}
	s.disjoint()
}

// The commit index is published before any message of its Ready leaves. Node 1 has a slow disk,
// so its own state machine gets the entry much later than the followers, which learn of the commit
// from node 1.
func TestL7CommitIndexIsSeenBeforeTheMessagesLeave(t *testing.T) {
	slow := false
	s := begin(t, leasetest.Options{Node: func(id uint64) leasetest.NodeOptions {
		return leasetest.NodeOptions{Async: true, DiskDelay: diskDelay(id == 1, &slow)}
	}})
	s.lead(1)
	s.Run(500 * ms)
	slow = true
	s.Node(1).Write(7, 1, func(uint64) {})
	if !s.RunUntil(500*ms, func() bool { return s.Node(2).Version(7) != 0 }) {
		t.Fatal("node 2 has not applied the write")
	}
	written := s.Node(2).Version(7)
	if s.Node(1).Version(7) != 0 {
		t.Fatal("node 1 has applied the write already")
	}
	index, st := s.Node(1).Lease().TryRead()
	if st != core.Valid || index < written {
		t.Errorf("TryRead() = %d, %v, want at least %d, valid", index, st, written)
	}
	a := s.read(1, 7)
	s.Run(2 * election)
	if !a.served() || a.version != written {
		t.Errorf("Read(7) = %+v, want version %d", *a, written)
	}
}

// A lease that the embedder gives up is gone when the call returns.
func TestL7CloseAndInvalidateTakeEffectAtOnce(t *testing.T) {
	s := begin(t, leasetest.Options{})
	n := s.lead(1)
	hook.Invalidate(n.Lease())
	s.wantStatus(1, core.Expired)
	s.Run(200 * ms)
	s.wantStatus(1, core.Valid)
	n.Lease().Close()
	s.wantStatus(1, core.Closed)
	s.Run(200 * ms)
	s.wantStatus(1, core.Closed)
	var err error
	n.Lease().StartRead(context.Background(), leaderlease.ReadModeLease, func(_ leaderlease.ReadResult, e error) { err = e })
	if err == nil {
		t.Error("StartRead() after Close = nil, want an error")
	}
}

// Grants end with the leader's term. A new term begins without grants, even on the same node.
func TestL8ANewTermBeginsWithoutGrants(t *testing.T) {
	l := leaderOfTerm5(1000, &raftpb.ConfState{Voters: ids(1, 2, 3)})
	l.Count(2, 5, core.Grant{Sent: 1500, Duration: duration}, 2000)
	v := l.View(2000)
	if got := v.Check(2000); got != core.Valid {
		t.Fatalf("Check() = %v, want valid", got)
	}
	l.Lead(7, 3000)
	l.OwnTermCommitted()
	v = l.View(3000)
	if v.Term != 7 || v.End != 0 {
		t.Errorf("View() in the new term = term %d, end %d, want term 7, end 0", v.Term, v.End)
	}
	if l.Count(2, 5, core.Grant{Sent: 2500, Duration: duration}, 4000); l.View(4000).End != 0 {
		t.Errorf("View().End = %d after a grant of term 5, want 0", l.View(4000).End)
	}
	l.StepDown()
	if l.Count(2, 7, core.Grant{Sent: 3500, Duration: duration}, 4000); l.View(4000).End != 0 {
		t.Errorf("View().End = %d after the step-down, want 0", l.View(4000).End)
	}
}

// Node 1 loses leadership with some grants counted and others under way, and wins the next election.
// Neither kind renews the new lease, because they are of the earlier term.
func TestL8OldGrantsDoNotReviveTheLease(t *testing.T) {
	s, late := aborted(t)
	s.Net.Cut(1, 2)
	s.Run(election + 300*ms)
	s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
	s.Run(150 * ms)
	s.wantLeader(1, 1)
	s.Net.Join(1, 2)
	s.hand(late) // node 1 votes for node 2
	s.Run(20 * ms)
	s.Node(2).Transfer(1)
	s.Run(20 * ms)
	n := s.Node(1)
	if lead := s.Leader(); lead != n || n.Term() != 3 {
		t.Fatalf("Leader() = %+v, want node 1 in term 3", lead)
	}
	s.wantStatus(1, core.Expired)
	s.Net.Release(nil)
	s.Run(5 * ms)
	s.wantStatus(1, core.Expired)
}

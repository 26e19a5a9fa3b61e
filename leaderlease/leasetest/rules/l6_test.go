package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The leader gives its lease up before the word leaves, so the new leader need
// not wait for it, even if the old one never hears of the election.
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

// aborted is a cluster in which node 1 gave a transfer to node 2 up, holds a
// lease again, and whose MsgTimeoutNow is still under way.
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

// Delivered at last, or once more, the MsgTimeoutNow finds its receiver bound
// by a newer probe than it releases.
func TestL6LateTimeoutNowAfterAbort(t *testing.T) {
	s, late := aborted(t)
	s.Run(election + 300*ms)
	s.wantReign(1, 1)
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
	s.usurp(2, 2, 3)
}

// The transferee itself is free, and campaigns; node 3 has promised to a newer
// probe than the release names, and keeps its word.
func TestL6ForcedVoteMeetsANewerPromise(t *testing.T) {
	s, late := aborted(t)
	s.Net.Cut(1, 2)
	s.Run(election + 300*ms)
	s.wantReign(1, 1)
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
	s.usurp(2, 2, 3)
}

// A heartbeat from before the transfer arrives after the release. Its probe asks
// for a promise that nobody would count, and that would hold the transfer up.
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
	if end := s.Node(1).Lease().Info().End; end != 0 {
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

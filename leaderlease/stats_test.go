package leaderlease

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// Names are metric labels: each value has one, and no two share it.
func TestNamesAreUnique(t *testing.T) {
	names := func(what string, n int, name func(int) string) {
		t.Helper()
		seen := map[string]bool{}
		for i := range n {
			s := name(i)
			if s == "" || s == "unknown" || seen[s] {
				t.Errorf("%s(%d).String() = %q, want a name of its own", what, i, s)
			}
			seen[s] = true
		}
		for _, beyond := range []int{n, 255} {
			if got := name(beyond); got != "unknown" {
				t.Errorf("%s(%d).String() = %q, want unknown", what, beyond, got)
			}
		}
	}
	names("Path", numPaths, func(i int) string { return Path(i).String() })
	names("Status", core.NumStatus, func(i int) string { return core.Status(i).String() })
}

// busyDay makes each counter move, at the leader and at the voter it became.
func busyDay(t *testing.T) *puppet {
	t.Helper()
	p := leading(t, func(c *Config) { c.Send = func([]*raftpb.Message) {} })
	_, _ = p.Read(t.Context())
	p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1)) // answered from the lease
	p.clock.Advance(usable)
	p.Tick() // lost to the margin
	p.TryRead()
	p.startRead() // its round is answered
	p.answer(p.asked(), p.last)
	p.startRead() // joins the renewal
	p.clock.Advance(usable)
	p.renew()
	p.Incoming(p.message(raftpb.MsgHeartbeatResp, 2, 1)) // no grant
	odd := p.message(raftpb.MsgHeartbeatResp, 2, 1)
	odd.ProtoReflect().SetUnknown(field(9, 9))
	p.Incoming(odd)
	p.clock.marker.Add(1)
	p.Tick()
	p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgTimeoutNow, 1, 2)}})

	p.follow(3, 2)
	p.promiseTo(2)
	greedy := p.message(raftpb.MsgHeartbeat, 2, 1)
	attachProbe(greedy, core.Probe{Sent: 1, Duration: time.Hour})
	p.Incoming(greedy)
	for _, typ := range []raftpb.MessageType{raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow} {
		p.Incoming(p.message(typ, 3, 1))
	}
	p.Ready(raft.Ready{Messages: []*raftpb.Message{
		p.message(raftpb.MsgHeartbeatResp, 1, 2), p.message(raftpb.MsgVote, 1, 3),
		p.message(raftpb.MsgPreVote, 1, 3), p.message(raftpb.MsgVoteResp, 1, 3),
	}})
	p.startRead()
	p.answer(p.asked(), p.last)
	p.clock.reading.Store(0)
	p.Tick()
	return p
}

func TestStatsCountWhatHappened(t *testing.T) {
	p := busyDay(t)
	want := Stats{
		Renewals: 2, Rounds: 3, Answered: 1, Probes: 2, Promises: 1, Grants: 1, RefusedProbes: 1,
		Malformed: 1, Absent: 1, Transfers: 1, ClockFaults: 1, Disruptions: 1,
	}
	want.Losses[core.Margin], want.Losses[core.ClockFault] = 1, 1
	want.Reads[PathLease], want.Reads[PathReadIndex], want.Reads[PathJoined], want.Reads[PathForwarded] = 1, 1, 1, 1
	w := &want.Withheld
	for _, n := range []*uint64{&w.VoteIn, &w.PreVoteIn, &w.TimeoutNowIn, &w.VoteOut, &w.PreVoteOut, &w.VoteRespOut} {
		*n = 1
	}
	// TryRead and the two reads in the margin; the read of the follower, which
	// holds since its clock was disrupted.
	want.Refused[core.Margin], want.Refused[core.RestartHold] = 3, 1

	got := p.Stats()
	if got != want {
		gotV, wantV := reflect.ValueOf(got), reflect.ValueOf(want)
		for i := range gotV.NumField() {
			if g, w := gotV.Field(i).Interface(), wantV.Field(i).Interface(); !reflect.DeepEqual(g, w) {
				t.Errorf("Stats().%s = %v, want %v", gotV.Type().Field(i).Name, g, w)
			}
		}
	}
	if n := got.Losses[core.Expired] + got.Losses[core.Margin]; n != 1 {
		t.Errorf("%d leases are lost to time, want 1", n)
	}
}

// Each kind of withheld message has a counter of its own.
func TestStatsTellWithheldMessagesApart(t *testing.T) {
	p := newPuppet(t)
	p.follow(2, 2)
	p.promiseTo(2)
	for n, typ := range []raftpb.MessageType{raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow, raftpb.MsgVoteResp} {
		for range n + 1 {
			p.Incoming(p.message(typ, 3, 1))
		}
	}
	for n, typ := range []raftpb.MessageType{raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgVoteResp} {
		for range n + 5 {
			p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(typ, 1, 3)}})
		}
	}
	want := Stats{}.Withheld
	want.VoteIn, want.PreVoteIn, want.TimeoutNowIn, want.VoteRespIn = 1, 2, 3, 4
	want.VoteOut, want.PreVoteOut, want.VoteRespOut = 5, 6, 7
	if got := p.Stats().Withheld; got != want {
		t.Errorf("Stats().Withheld = %+v, want %+v", got, want)
	}
}

// A vote that a sole voter gives itself inside the storage message, its tick
// and its Ready are counted too.
func TestStatsOfASoleVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t, bubbled, func(c *Config) { restartedAlone(t, c) })
		if p.Tick() {
			t.Error("Tick() in the restart hold of a sole voter = true, want it withheld")
		}
		began := time.Now()
		p.win(2)
		if held := time.Since(began); held != 900*ms {
			t.Errorf("Ready() of the election was held for %v, want until the end of the restart hold, 900ms", held)
		}
		s := p.Stats()
		if s.Withheld.Tick != 1 || s.Withheld.Self != 1 {
			t.Errorf("Stats().Withheld = %v, want one tick and one Ready", s.Withheld)
		}
	})
}

func TestStatusOfALeader(t *testing.T) {
	p := leading(t)
	p.commitNew()
	p.startRead()
	p.clock.Advance(100 * ms)
	s := p.Info()
	want := Info{
		ID: 1, Term: 2, Leader: 1, Role: raft.StateLeader, Status: core.Valid,
		Remaining: usable - 100*ms, EndsIn: 800 * ms, Promise: core.PromiseInfo{Saved: 900 * ms},
		Commit: p.last, Applied: p.last - 1, Waiting: 1,
		Duration: 900 * ms, MaxClockSkew: 180 * ms, MaxPromise: 900 * ms,
		Peers: []core.PeerInfo{
			{ID: 2, Promised: 800 * ms, GrantAge: 100 * ms, Duration: 900 * ms},
			{ID: 3, GrantAge: -1}, // who grants nothing stands out
		},
	}
	if s.Clock.Name == "" {
		t.Error("Info().Clock.Name is empty, want to know which clock is in use")
	}
	s.Clock = clock.Info{}
	if got, want := fmt.Sprintf("%+v", s), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("Info() = %s, want %s", got, want)
	}
	if !s.Valid() {
		t.Error("Info().Valid() = false, want true")
	}
	p.clock.Advance(time.Hour)
	if s := p.Info(); s.Valid() || s.Remaining != 0 || s.EndsIn != 0 || s.Status != core.Expired || s.Peers[0].Promised != 0 {
		t.Errorf("Info() after the end = %+v, want nothing left", s)
	}
}

func TestStatusOfAFollower(t *testing.T) {
	p := following(t)
	p.promiseTo(3)
	p.clock.Advance(300 * ms)
	s := p.Info()
	if s.Leader != 3 || s.Role != raft.StateFollower || s.Status != core.NotLeader || s.Peers != nil || s.EndsIn != 0 || s.Remaining != 0 {
		t.Errorf("Info() = %+v, want a follower of 3 without a lease", s)
	}
	if want := (core.PromiseInfo{Leader: 3, Term: 2, Remaining: 600 * ms, Saved: 900 * ms}); s.Promise != want {
		t.Errorf("Info().Promise = %+v, want %+v", s.Promise, want)
	}
}

func TestStatusOfASoleVoter(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.Raft.Storage = bootstrapped(t, 1) })
	p.lead(2)
	if s := p.Info(); !s.Valid() || s.Remaining != 900*ms || s.EndsIn != 900*ms {
		t.Errorf("Info() = %v, %v, %v, want valid, and at most Duration, 900ms", s.Status, s.Remaining, s.EndsIn)
	}
}

func TestNoLeaseErrorExplains(t *testing.T) {
	cause := errors.New("the cause")
	err := error(&NoLeaseError{Term: 7, Leader: 3, Status: core.Margin, Err: cause})
	if got, want := err.Error(), "leaderlease: no usable lease: margin (term 7, leader 3): the cause"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if !errors.Is(err, ErrNoLease) || !errors.Is(err, cause) || errors.Is(err, raft.ErrStopped) {
		t.Errorf("errors.Is(%v) matches neither or too much, want ErrNoLease and the cause", err)
	}
}

// idleGroups returns n leases of followers, as a process with many groups has
// them, and what each costs in memory.
func idleGroups(tb testing.TB, n int) (groups []*Lease, bytes uint64) {
	tb.Helper()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	// Storage and raft's own configuration are the embedder's.
	cfg := puppetConfig(tb)
	cfg.Clock = clock.System()
	groups = make([]*Lease, 0, n)
	before := heap()
	for range n {
		l, err := New(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		l.Ready(&raft.Ready{
			SoftState: &raft.SoftState{Lead: 2, RaftState: raft.StateFollower},
			HardState: &raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(1))},
		})
		groups = append(groups, l)
	}
	return groups, (heap() - before) / uint64(n)
}

// Ten thousand groups fit into a process.
func TestIdleGroupsAreSmall(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	groups, bytes := idleGroups(t, 10_000)
	t.Logf("%d idle groups: %d bytes each", len(groups), bytes)
	if bytes > 8<<10 {
		t.Errorf("an idle group takes %d bytes, want at most 8 KiB", bytes)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines for %d groups, want none", n-goroutines, len(groups))
	}
	slices.Reverse(groups) // keeps them alive until here
}

func BenchmarkIdleGroups(b *testing.B) {
	groups, bytes := idleGroups(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		for _, l := range groups {
			l.Tick()
		}
	}
	b.ReportMetric(float64(bytes), "B/group")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(groups)), "ns/tick/group")
}

package leasetrace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

func TestAFailOverIsAllowed(t *testing.T) {
	v := leasetrace.Judge(story(t))
	if err := v.Err(); err != nil {
		t.Fatalf("%v\n%v", err, v)
	}
	if v.Terms != 2 || v.Unmatched != 0 || v.Matched < 10 || v.Kinds[leasetrace.KindHeld] != 3 {
		t.Errorf("%v, want 2 terms, a send for every message, and a lease that is held, lost and held", v)
	}
}

// Judge refuses traces with a changed or a missing event.
func TestChangedEventsAreRefused(t *testing.T) {
	const leader, voter, next = 0, 1, 2
	event := func(p int, k leasetrace.Kind, nth int, change func(*leasetrace.Event)) func(*testing.T, []leasetrace.Process) {
		return func(t *testing.T, all []leasetrace.Process) { change(find(t, &all[p], k, nth)) }
	}
	flip := func(e *leasetrace.Event) { e.OK = !e.OK }
	missing := func(p int, k leasetrace.Kind, nth int) func(*testing.T, []leasetrace.Process) {
		return func(t *testing.T, all []leasetrace.Process) { drop(&all[p], find(t, &all[p], k, nth)) }
	}
	both := func(some ...func(*testing.T, []leasetrace.Process)) func(*testing.T, []leasetrace.Process) {
		return func(t *testing.T, all []leasetrace.Process) {
			for _, change := range some {
				change(t, all)
			}
		}
	}
	earlier := func(e *leasetrace.Event) { e.Instant-- }
	longer := func(e *leasetrace.Event) { e.Duration++ }
	later := func(e *leasetrace.Event) { e.Term++ }
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, all []leasetrace.Process)
		want   string
	}{
		{"a promise that was not made", event(voter, leasetrace.KindPromise, 1, flip), "the promise is made: false, want true"},
		{"a renewal by an old grant", event(leader, leasetrace.KindCount, 2, flip), "renews the lease: true, want false"},
		{"a bound candidate", event(next, leasetrace.KindCandidacy, 1, flip), "it is free: true, want false"},
		{"a request that was let in", event(voter, leasetrace.KindRequest, 1, flip), "let in: false, want true"},
		{"a longer lease", event(leader, leasetrace.KindView, 3, func(e *leasetrace.Event) { e.Instant++ }), "readers are shown"},
		{"a lease that is not usable", event(leader, leasetrace.KindView, 4, func(e *leasetrace.Event) { e.Status = leaderlease.StatusDisabled }), "readers are shown"},
		{"a lease that is held on", event(leader, leasetrace.KindHeld, 2, flip), "the lease is held"},
		{"a renewal that readers never see", missing(leader, leasetrace.KindView, 4), "readers still see"},
		{"a probe of an earlier instant", both(event(leader, leasetrace.KindProbe, 3, earlier), event(voter, leasetrace.KindPromise, 2, earlier)), "the probe"},
		{"a probe of another term", both(event(leader, leasetrace.KindProbe, 3, later), event(voter, leasetrace.KindPromise, 2, later)), "in term 3, while it leads 2"},
		{"a grant to another term", both(event(voter, leasetrace.KindGrant, 3, later), event(leader, leasetrace.KindCount, 5, later)), "nothing was promised"},
		{"a grant for longer", both(event(voter, leasetrace.KindGrant, 1, longer), event(leader, leasetrace.KindCount, 1, longer)), "the grant"},
		{"a grant before a term is durable", missing(voter, leasetrace.KindDurable, 1), "a grant leaves a StateFollower"},
		{"a grant without a send", missing(voter, leasetrace.KindGrant, 1), "member 2 has sent no such grant"},
		{"a probe without a send", missing(leader, leasetrace.KindProbe, 1), "member 1 has sent no such probe"},
		{"a vote without a send", missing(voter, leasetrace.KindVoteOut, 1), "member 2 has sent no such vote_out"},
		{"a vote that was kept back", both(event(voter, leasetrace.KindVoteOut, 1, flip), missing(next, leasetrace.KindVoteIn, 1)), "the vote may leave: false, want true"},
		{"a request for a vote without a send", missing(next, leasetrace.KindCandidacy, 2), "member 3 has sent no such candidacy"},
		{"a clock that goes back", event(voter, leasetrace.KindPromise, 3, func(e *leasetrace.Event) { e.At -= leaderlease.Instant(ms * 200) }), "the clock shows"},
		{"a configuration of fewer voters", event(leader, leasetrace.KindVoters, 1, func(e *leasetrace.Event) { e.Number = 4 }), "1 voters of a configuration are not told"},
		{"a term that is led twice", func(t *testing.T, all []leasetrace.Process) {
			e := find(t, &all[voter], leasetrace.KindRaft, 2)
			e.Role, e.Peer = raft.StateLeader, 2
		}, "it leads term 3, which"},
		{"an unknown event", event(voter, leasetrace.KindView, 1, func(e *leasetrace.Event) { e.Kind = leasetrace.KindNone }), "of kind none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := story(t)
			tc.change(t, all)
			v := leasetrace.Judge(all)
			if v.Refused == nil || !strings.Contains(v.Refused.Error(), tc.want) {
				t.Errorf("%v, want a refusal that says %q", v, tc.want)
			}
		})
	}
}

// Judge stops at a missing event of a process, and checks nothing behind it.
func TestAGapEndsAJudgement(t *testing.T) {
	all := story(t)
	hole := find(t, &all[1], leasetrace.KindGrant, 2).Seq
	all[1].Events = slices.DeleteFunc(all[1].Events, func(e leasetrace.Event) bool { return e.Seq == hole })
	find(t, &all[1], leasetrace.KindPromise, 3).OK = false // behind the gap, so it is not judged
	v := leasetrace.Judge(all)
	if v.Refused != nil {
		t.Fatalf("%v is refused, want no more than a gap", v.Refused)
	}
	if p := v.Processes[1]; p.Events != int(hole)-1 || !p.Gap || !strings.Contains(p.Until, "are missing") {
		t.Errorf("judged up to event %d, %q, want up to the gap at %d", p.Events, p.Until, hole)
	}
	if err := v.Err(); err == nil || !strings.Contains(err.Error(), "is judged up to event") {
		t.Errorf("Err() = %v, want the gap", err)
	}
	if v.Unmatched != 1 {
		t.Errorf("%d messages are from the gap, want the grant that is missing", v.Unmatched)
	}
}

// If the end of a trace is missing, so may be the sends in it, but no earlier ones.
func TestAMissingEndMayHideSends(t *testing.T) {
	all := story(t)
	at := slices.IndexFunc(all[1].Events, func(e leasetrace.Event) bool { return e.Kind == leasetrace.KindVoteOut })
	all[1].Events, all[1].Ended = all[1].Events[:at], false
	v := leasetrace.Judge(all)
	if err := v.Err(); err != nil || v.Unmatched != 2 || v.Processes[1].Until == "" {
		t.Errorf("%v\n%v\nwant the last vote and the last grant unmatched", err, v)
	}
	drop(&all[1], find(t, &all[1], leasetrace.KindGrant, 1))
	if v := leasetrace.Judge(all); v.Refused == nil || !strings.Contains(v.Refused.Error(), "no such grant") {
		t.Errorf("%v, want the first grant to be missed", v)
	}
	v = leasetrace.Judge(all[:1])
	if err := v.Err(); err != nil || v.Matched != 0 || v.Unmatched == 0 {
		t.Errorf("%v\n%v\nof the leader alone, want every message unmatched", err, v)
	}
	if err := leasetrace.Judge(nil).Err(); err == nil {
		t.Error("Judge accepts an empty list of traces")
	}
}

// alone is a hand-written trace of a sole voter that leads.
func alone(id, term uint64, more ...leasetrace.Event) leasetrace.Process {
	p := leasetrace.Process{Ended: true, Start: leasetrace.Start{ID: id, At: 10, Incarnation: 1, Duration: 100, MaxClockSkew: 10, MaxPromise: 100, TransferTimeout: 100}}
	p.Events = append([]leasetrace.Event{
		{Kind: leasetrace.KindVoters, At: 10, Number: 1},
		{Kind: leasetrace.KindVoter, At: 10, Peer: id, Number: 1},
		{Kind: leasetrace.KindView, At: 10, Reading: 10, Status: leaderlease.StatusNotLeader},
		{Kind: leasetrace.KindRaft, At: 20, Term: term, Peer: id, Role: raft.StateLeader, OK: true},
		{Kind: leasetrace.KindView, At: 20, Reading: 20, Term: term, Instant: 1<<63 - 1, Status: leaderlease.StatusValid},
	}, more...)
	for i := range p.Events {
		p.Events[i].Seq = uint64(i + 1)
	}
	return p
}

// Each process alone may follow the rules while the claim does not hold: here two members
// each believe to be the sole voter.
func TestTheClaimIsChecked(t *testing.T) {
	first := alone(1, 1, leasetrace.Event{Kind: leasetrace.KindPromise, At: 30, Peer: 2, Term: 2, Instant: 40, Duration: 100, OK: true})
	second := alone(2, 2, leasetrace.Event{Kind: leasetrace.KindProbe, At: 40, Peer: 1, Term: 2, Instant: 40, Duration: 100, OK: true})
	for _, all := range [][]leasetrace.Process{{first, second}, {second, first}} {
		v := leasetrace.Judge(all)
		if v.Refused == nil || !strings.Contains(v.Refused.Error(), "its view of term 1 is valid, but term 2 was won") {
			t.Errorf("%v, want the claim to be refused", v)
		}
	}
	// Without the messages, the order of the two elections is unknown.
	first.Events = first.Events[:5]
	if err := leasetrace.Judge([]leasetrace.Process{first, second}).Err(); err != nil {
		t.Error(err)
	}
}

// A message cannot be received before it is sent, even where two processes wait for each other.
func TestNothingArrivesBeforeItIsSent(t *testing.T) {
	vote := func(k leasetrace.Kind, peer, term uint64) leasetrace.Event {
		return leasetrace.Event{Kind: k, At: 30, Peer: peer, Term: term, Message: raftpb.MsgVote, OK: true}
	}
	v := leasetrace.Judge([]leasetrace.Process{
		alone(1, 1, vote(leasetrace.KindRequest, 2, 2), vote(leasetrace.KindCandidacy, 2, 1)),
		alone(2, 2, vote(leasetrace.KindRequest, 1, 1), vote(leasetrace.KindCandidacy, 1, 2)),
	})
	if v.Refused == nil || !strings.Contains(v.Refused.Error(), "it receives a message that is sent later") {
		t.Errorf("%v, want a circle", v)
	}
}

func TestAProcessHoldsForEarlierGrants(t *testing.T) {
	all := story(t)
	next := leasetrace.Process{Start: all[1].Start, Ended: true}
	next.Start.Incarnation++
	next.Start.Hold = all[1].Start.MaxPromise
	if err := leasetrace.Judge(append(all, next)).Err(); err != nil {
		t.Error(err)
	}
	next.Start.Hold--
	next.Events = alone(2, 9).Events[:3]
	v := leasetrace.Judge(append(all, next))
	if v.Refused == nil || !strings.Contains(v.Refused.Error(), "its predecessor has granted up to 900ms") {
		t.Errorf("%v, want the hold to be too short", v)
	}
}

// If the traces of a member begin with a restart, its earlier messages have no send in the
// traces. Its later messages must have one.
func TestAMemberWithoutATraceBefore(t *testing.T) {
	restarted := func(term uint64, at leaderlease.Instant) (all []leasetrace.Process) {
		all = story(t)
		s := all[1].Start
		s.Incarnation++
		s.At, s.Term, s.Hold = at, term, s.MaxPromise
		all[1] = leasetrace.Process{Start: s, Ended: true}
		return all
	}
	old := story(t)[1]
	end := old.Events[len(old.Events)-1].At + 1
	if v := leasetrace.Judge(restarted(3, end)); v.Err() != nil || v.Unmatched == 0 {
		t.Errorf("%v, want what was sent before to be unmatched", v)
	}
	if v := leasetrace.Judge(restarted(3, old.Start.At)); v.Refused == nil || !strings.Contains(v.Refused.Error(), "sent no such grant") {
		t.Errorf("%v, want the grants since to be missed", v)
	}
	if v := leasetrace.Judge(restarted(2, end)); v.Refused == nil || !strings.Contains(v.Refused.Error(), "sent no such vote_out") {
		t.Errorf("%v, want a vote of a term that it was not in to be missed", v)
	}
}

// Judge accepts a trace in which the clock fails during a transfer and a configuration change.
func TestAClockThatFailsInATransfer(t *testing.T) {
	m := newMember(t, 1, raft.NewMemoryStorage(), time.Hour)
	m.becomes(raft.StateLeader, 2, 1, &raftpb.Entry{Term: new(uint64(2)), Index: new(uint64(1)), Type: raftpb.EntryConfChange.Enum()})
	m.ApplyConfState(1, &raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	m.clock.now = 0
	m.Ready(&raft.Ready{
		Messages:         []*raftpb.Message{{Type: raftpb.MsgTimeoutNow.Enum(), From: new(m.id), To: new(uint64(2)), Term: new(m.term)}},
		CommittedEntries: []*raftpb.Entry{{Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(2)), Index: new(uint64(2))}},
	})
	v := leasetrace.Judge(traces(m))
	if err := v.Err(); err != nil || v.Kinds[leasetrace.KindRelease] != 1 || v.Kinds[leasetrace.KindConfPending] != 3 {
		t.Errorf("%v\n%v, want a release, and a change while it is under way", err, v)
	}
}

// A process that starts with a term in storage has restarted. It must hold even if the
// trace of its predecessor is missing.
func TestARestartHoldsWithoutEarlierTraces(t *testing.T) {
	p := alone(1, 9)
	p.Start.Term = 8
	if v := leasetrace.Judge([]leasetrace.Process{p}); v.Refused == nil || !strings.Contains(v.Refused.Error(), "after a restart in term 8") {
		t.Errorf("%v, want the hold to be missed", v)
	}
}

// Each later process of a member knows that a term was won, even after a process that was
// killed before it recorded an event.
func TestWonTermsSurviveRestarts(t *testing.T) {
	hears := leasetrace.Event{Kind: leasetrace.KindPromise, At: 30, Peer: 2, Term: 2, Instant: 40, Duration: 100, OK: true}
	probes := leasetrace.Event{Kind: leasetrace.KindProbe, At: 40, Peer: 1, Term: 2, Instant: 40, Duration: 100, OK: true}
	first, killed, again := alone(1, 1), alone(1, 1), alone(1, 1)
	first.Events = append(first.Events[:3], hears)
	first.Events[3].Seq = 4
	killed.Events = nil
	v := leasetrace.Judge([]leasetrace.Process{first, killed, again, alone(2, 2, probes)})
	if v.Refused == nil || !strings.Contains(v.Refused.Error(), "its view of term 1 is valid, but term 2 was won") {
		t.Errorf("%v, want the claim to be refused", v)
	}
}

// A change of the configuration is over when its voters count (L5).
func TestAChangeIsOverWhenItsVotersCount(t *testing.T) {
	last := leaderlease.Instant(1<<63 - 1)
	flag := func(at leaderlease.Instant, open bool, s leaderlease.Status) []leasetrace.Event {
		return []leasetrace.Event{
			{Kind: leasetrace.KindConfPending, At: at, OK: open},
			{Kind: leasetrace.KindView, At: at, Reading: at, Term: 1, Instant: last, Status: s},
		}
	}
	voters := []leasetrace.Event{
		{Kind: leasetrace.KindVoters, At: 40, Number: 1},
		{Kind: leasetrace.KindVoter, At: 40, Peer: 1, Number: 1},
	}
	told := alone(1, 1, slices.Concat(flag(30, true, leaderlease.StatusConfPending), voters, flag(40, false, leaderlease.StatusValid))...)
	if err := leasetrace.Judge([]leasetrace.Process{told}).Err(); err != nil {
		t.Error(err)
	}
	not := alone(1, 1, slices.Concat(flag(30, true, leaderlease.StatusConfPending), flag(40, false, leaderlease.StatusValid))...)
	if v := leasetrace.Judge([]leasetrace.Process{not}); v.Refused == nil || !strings.Contains(v.Refused.Error(), "its voters are not told") {
		t.Errorf("%v, want the change to be missed", v)
	}
}

// leaderDied returns the traces of a leader and a follower. The leader's process 7 dies; the
// follower campaigns, and receives the death notice once more.
func leaderDied(t *testing.T) []leasetrace.Process {
	t.Helper()
	storage := raft.NewMemoryStorage()
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	if err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}}); err != nil {
		t.Fatal(err)
	}
	leader, voter := newMember(t, 1, storage, time.Hour), newMember(t, 2, storage, 2*time.Hour)
	leader.becomes(raft.StateLeader, 2, 1)
	voter.becomes(raft.StateFollower, 2, 1)
	beat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(2))}
	leader.Ready(&raft.Ready{Messages: []*raftpb.Message{beat}})
	voter.Incoming(beat, leaderlease.ProcessID{7})
	voter.ProcessDied(1, leaderlease.ProcessID{6})
	m, ok := voter.ProcessDied(1, leaderlease.ProcessID{7})
	if !ok || !voter.Incoming(m, leaderlease.ProcessID{}) {
		t.Fatalf("ProcessDied() = %v, %v, or it is not let in", m, ok)
	}
	voter.Incoming(beat, leaderlease.ProcessID{7})
	ask := &raftpb.Message{Type: raftpb.MsgVote.Enum(), From: new(uint64(2)), To: new(uint64(3)), Term: new(uint64(3)), Context: []byte("CampaignTransfer")}
	voter.Ready(&raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}, HardState: hardState(3), Messages: []*raftpb.Message{ask}})
	if voter.ProcessDied(1, leaderlease.ProcessID{7}); ask.GetType() != raftpb.MsgVote {
		t.Fatal("the request for a vote was withheld")
	}
	return traces(leader, voter)
}

// No member sends the request that a death notice causes, so the notice must come before it.
func TestADeathNoticeIsJudged(t *testing.T) {
	v := leasetrace.Judge(leaderDied(t))
	if err := v.Err(); err != nil || v.Unmatched > 0 || v.Kinds[leasetrace.KindProcessDied] != 3 || v.Kinds[leasetrace.KindCandidacy] != 1 {
		t.Errorf("%v, %v, want three death notices and a candidacy", err, v)
	}
	const voter = 1
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, p *leasetrace.Process)
		want   string
	}{
		{"a notice of an earlier process that voids", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 1).OK = true }, "the promise is void"},
		{"a notice that voids nothing", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 2).OK = false }, "the promise is void"},
		{"a promise to another process", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindPromise, 1).Number = 8 }, "the promise is void"},
		{"a missing notice", func(t *testing.T, p *leasetrace.Process) { drop(p, find(t, p, leasetrace.KindProcessDied, 2)) }, "no death notice has voided"},
		{"a notice of another leader", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindRequest, 1).Peer = 3 }, "no death notice has voided"},
		{"a promise to a dead process", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindPromise, 2).OK = true }, "the promise is made: true, want false"},
		{"another release in a vote", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindCandidacy, 1).Number = 1 }, "it passes on"},
		{"a notice that voids in a later term", func(t *testing.T, p *leasetrace.Process) { find(t, p, leasetrace.KindProcessDied, 3).OK = true }, "the promise is void"},
	} {
		all := leaderDied(t)
		tc.change(t, &all[voter])
		if v := leasetrace.Judge(all); v.Refused == nil || !strings.Contains(v.Refused.Error(), tc.want) {
			t.Errorf("%s: %v, want a refusal that says %q", tc.name, v, tc.want)
		}
	}
}

package sim

import (
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// raftAlone is a run of bare RawNodes without a rule, or with all of them if it is "".
func raftAlone(seed uint64, without string) Config {
	return Config{Seed: seed, Duration: time.Minute, Amend: func(s *Schedule) {
		s.RunRaftAlone()
		s.Swarm.Without = without
	}}
}

// With all rules, bare RawNodes violate nothing.
func TestRaftAlone(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 4
	}
	sum := &Result{}
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(t, raftAlone(seed, ""))
		r.Require(t)
		sum.Add(r)
	}
	t.Logf("%d elections, %d crashes, %d reads, %d Readys torn, %d commit indexes proved\n%s", sum.Elections, sum.Crashes,
		sum.Reads[leaderlease.PathReadIndex], sum.Torn, sum.Recovered, sum.volatileTable())
	if testing.Short() {
		return
	}
	for _, k := range slices.Concat(faultKinds, tornFaults, raftFaults) {
		if sum.Faults[k.name] == 0 {
			t.Errorf("no fault %s in %d seeds", k.name, seeds)
		}
	}
	if sum.Torn == 0 || sum.Recovered == 0 || sum.Reads[leaderlease.PathReadIndex] == 0 {
		t.Error("want torn Readys, commit indexes that a log proved, and reads")
	}
}

// The rules that are there for liveness alone are not needed for safety: without them a group may
// have no leader at worst.
func TestRaftAloneIsSafeWithoutTheRulesForLiveness(t *testing.T) {
	skipShort(t)
	for seed := range uint64(60) {
		cfg := raftAlone(seed+1, "")
		draw := cfg.Amend
		cfg.Amend = func(s *Schedule) { draw(s); s.Swarm.Bare = true }
		Run(t, cfg).Require(t)
	}
}

// Without any one of the rules, the simulator finds the violation that the rule prevents.
func TestEachRuleIsNeeded(t *testing.T) {
	skipShort(t)
	for _, c := range []struct {
		rule    string
		oracles []string
		seeds   uint64
	}{
		{"HoldVotes", []string{"raft"}, 100},
		{"DurableConf", []string{"liveness"}, 100},
		{"CompactByRaft", []string{"panic"}, 20},
		{"OwnTermReads", []string{"stale"}, 50},
		{"QuietExit", []string{"liveness"}, 400},
		{"HoldAppends", []string{"liveness"}, 100},
		{"RecoverCommit", []string{"raft", "stale", "liveness", "panic"}, 150},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if r := firstViolation(t, raftAlone(0, c.rule), c.seeds); !slices.Contains(c.oracles, r.Violation.Oracle) {
				t.Errorf("%s, want one of the oracles %v", r.Line(), c.oracles)
			}
		})
	}
}

// By design, raft sends some data before it is durable: see the table in
// docs/raft-durability.md. The test counts it, and fails if a new version of raft changes it.
func TestMessagesWithVolatileData(t *testing.T) {
	skipShort(t)
	type words struct{ term, entry, commit bool }
	asItIs := map[raftpb.MessageType]words{
		raftpb.MsgProp:          {},
		raftpb.MsgApp:           {term: true, entry: true, commit: true},
		raftpb.MsgAppResp:       {},
		raftpb.MsgVote:          {term: true, entry: true},
		raftpb.MsgVoteResp:      {},
		raftpb.MsgSnap:          {term: true, commit: true},
		raftpb.MsgHeartbeat:     {term: true, commit: true},
		raftpb.MsgHeartbeatResp: {term: true},
		raftpb.MsgTimeoutNow:    {term: true},
		raftpb.MsgReadIndex:     {},
		raftpb.MsgReadIndexResp: {term: true, commit: true},
		raftpb.MsgPreVote:       {entry: true},
		raftpb.MsgPreVoteResp:   {},
	}
	held := map[raftpb.MessageType]words{
		raftpb.MsgApp:           {entry: true, commit: true},
		raftpb.MsgVote:          {},
		raftpb.MsgSnap:          {commit: true},
		raftpb.MsgHeartbeat:     {commit: true},
		raftpb.MsgTimeoutNow:    {},
		raftpb.MsgReadIndexResp: {commit: true},
	}
	for _, tc := range []struct {
		without string
		want    map[raftpb.MessageType]words
	}{{"HoldVotes", asItIs}, {"", held}} {
		sum := &Result{}
		for seed := uint64(1); seed <= 30; seed++ {
			sum.Add(Run(t, raftAlone(seed, tc.without)))
		}
		t.Logf("without %q\n%s", tc.without, sum.volatileTable())
		for kind, want := range tc.want {
			n := sum.Volatile[kind]
			got := words{n.Term > 0, n.Entry > 0, n.Commit > 0}
			// What is possible need not happen in so few messages.
			if got.term && !want.term || got.entry && !want.entry || got.commit && !want.commit {
				t.Errorf("without %q: %v had data that was not durable: %+v in %d messages, want at most %+v", tc.without, kind, got, n.Sent, want)
			}
		}
		if early := sum.Volatile[raftpb.MsgVote].Term > 0; early != (tc.without == "HoldVotes") {
			t.Errorf("without %q: MsgVote left before its term was durable: %v, want %v", tc.without, early, !early)
		}
		if sum.Volatile[raftpb.MsgVoteResp].Sent == 0 || sum.Volatile[raftpb.MsgAppResp].Sent == 0 {
			t.Errorf("without %q: no votes or no appends were answered", tc.without)
		}
	}
}

// Controls of the oracle for durable answers, which no seed violates.
func TestAnswersMustBeDurable(t *testing.T) {
	answer := func(kind raftpb.MessageType, to, term, index uint64) *raftpb.Message {
		return &raftpb.Message{Type: kind.Enum(), From: new(uint64(1)), To: new(to), Term: new(term), Index: new(index)}
	}
	for _, tc := range []struct {
		name  string
		m     *raftpb.Message
		early bool
	}{
		{"a vote that is durable", answer(raftpb.MsgVoteResp, 2, 5, 0), false},
		{"a vote of a term that is not durable", answer(raftpb.MsgVoteResp, 2, 6, 0), true},
		{"a vote for another member", answer(raftpb.MsgVoteResp, 3, 5, 0), true},
		{"an append that is durable", answer(raftpb.MsgAppResp, 2, 5, 1), false},
		{"an append that is not durable", answer(raftpb.MsgAppResp, 2, 5, 2), true},
		{"an append of an older term", answer(raftpb.MsgAppResp, 2, 4, 2), false},
		{"an append of a term that is not durable", answer(raftpb.MsgAppResp, 2, 6, 1), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, 1)
			cfg := raftAlone(1, "")
			draw := cfg.Amend
			cfg.Amend = func(s *Schedule) { draw(s); s.Swarm.Voters = 3 }
			cfg.NewDisk = func(_ uint64, conf *raftpb.ConfState) leasetest.Disk {
				d := leasetest.OneLog.NewDisk(conf)
				if conf == nil {
					return d
				}
				if err := d.Save(nil, &raftpb.HardState{Term: new(uint64(5)), Vote: new(uint64(2)), Commit: new(uint64(1))}, nil); err != nil {
					t.Fatal(err)
				}
				return d
			}
			s := newSim(cfg)
			s.build()
			if s.checkDurable(tc.m); s.violated() != tc.early {
				t.Errorf("violation %v, want %v", s.res.Violation, tc.early)
			}
		})
	}
}

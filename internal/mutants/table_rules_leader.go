package main

import (
	"slices"
)

// rules take one rule out, or half of it, and name the directed test that must
// then fail (leaderlease/leasetest/rules, and leaderlease itself).
var rules = slices.Concat(voterRules, savedRules, leaderRules, resignRules, deathRules, readRules, commitRules)

const (
	libPkg    = "./leaderlease"
	rulesPkg  = "./leaderlease/leasetest/rules"
	simPkg    = "./leaderlease/leasetest/sim"
	testPkg   = "./leaderlease/leasetest"
	guardFile = "leaderlease/core/guard.go"
	leaseFile = "leaderlease/core/lease.go"
	peerFile  = "leaderlease/core/peer.go"
	votesFile = "leaderlease/core/votes.go"
)

var leaderRules = []Mutant{
	{
		Rule: "L1", Name: "no probe on the heartbeats of ReadIndex", Pkg: rulesPkg, Test: "^TestL1ReadIndexRoundRenewsTheLease$",
		File: "leaderlease/outbound.go",
		Old:  "if m.GetTerm() != l.mu.lease.Term() {\n\t\treturn\n\t}\n\tif p, ok", New: "if m.GetTerm() != l.mu.lease.Term() || len(m.GetContext()) > 0 {\n\t\treturn\n\t}\n\tif p, ok",
	},
	{
		Rule: "L1", Name: "the probe carries the reading of the tick before", Pkg: rulesPkg, Test: "^TestL1EveryHeartbeatCarriesAProbe$",
		File: leaseFile,
		Old:  "return Probe{Sent: sent, Duration: l.p.Duration}, true", New: "return Probe{Sent: sent - 1, Duration: l.p.Duration}, true",
	},
	{
		Rule: "L1", Name: "a quorum round with each tick", Pkg: rulesPkg, Test: "^TestL1NoExtraMessages$",
		File: "leaderlease/tick.go",
		Old:  "if r.waiting.len() > 0 && l.needsRoundLocked() {", New: "if true {",
	},
	{
		Rule: "L2", Name: "lease measured from the arrival of the answer", Trace: true, Sim: true, Pkg: rulesPkg, Test: "^TestL2LeaseRunsFromTheSendTime$",
		File: peerFile,
		Old:  "until := g.Sent.Add(", New: "until := now.Add(",
	},
	{
		Rule: "L2", Name: "a late grant takes the place of a newer one", Trace: true, Pkg: rulesPkg, Test: "^TestL2LateAndDuplicateGrants$",
		File: peerFile,
		Old:  "\tp.promised = max(p.promised, until)\n", New: "\tchanged, p.promised = true, until\n",
		More: []Edit{{
			File: leaseFile,
			Old:  "\tcase p.until() > l.end:\n", New: "\tdefault:\n",
		}},
	},
	{
		Rule: "L2", Name: "the term of a grant is not looked at", Pkg: rulesPkg, Test: "^TestL2CountsOnlyPromisesOfThisTerm$/_term$",
		File: leaseFile,
		Old:  "p == nil || term == 0 || term != l.term ||", New: "p == nil ||",
	},
	{
		Rule: "L2", Name: "probes from before the term count", Trace: true, Pkg: rulesPkg, Test: "^TestL2CountsOnlyPromisesOfThisTerm$/^sent_before",
		File: leaseFile,
		Old:  "g.Sent <= l.after || g.Sent > now", New: "g.Sent > now",
	},
	{
		Rule: "L2", Name: "probes of the future count", Trace: true, Pkg: rulesPkg, Test: "^TestL2CountsOnlyPromisesOfThisTerm$/future$",
		File: leaseFile,
		Old:  "g.Sent <= l.after || g.Sent > now", New: "g.Sent <= l.after",
	},
	{
		Rule: "L2", Name: "the lease is longer than the promise", Pkg: rulesPkg, Test: "^TestL2CountsOnlyPromisesOfThisTerm$/^less_than",
		File: peerFile,
		Old:  "g.Sent.Add(min(g.Duration, params.Duration))", New: "g.Sent.Add(params.Duration)",
	},
	{
		Rule: "L3", Name: "only the incoming half of a joint configuration", Sim: true, Pkg: rulesPkg, Test: "^TestL3JointNeedsBothHalves$",
		File: leaseFile,
		Old:  "cfg.CommittedIndex(promised)", New: "cfg[0].CommittedIndex(promised)",
	},
	{
		Rule: "L3", Name: "only the outgoing half of a joint configuration", Pkg: rulesPkg, Test: "^TestL3QuorumOfPromises$/outgoing_half_only$",
		File: leaseFile,
		Old:  "\tend := uint64(cfg.CommittedIndex(promised))\n",
		New:  "\tif len(cfg[1]) > 0 {\n\t\tcfg[0] = cfg[1]\n\t}\n\tend := uint64(cfg[0].CommittedIndex(promised))\n",
	},
	{
		Rule: "L3", Name: "learners count", Sim: true, Pkg: rulesPkg, Test: "^TestL3LearnersDoNotCount$",
		File: leaseFile,
		Old:  "majority(cs.GetVoters()),", New: "majority(append(cs.GetVoters()[:len(cs.GetVoters()):len(cs.GetVoters())], cs.GetLearners()...)),",
	},
	{
		Rule: "L3", Name: "n/2 is a quorum", Pkg: rulesPkg, Test: "^TestL3QuorumOfPromises$/^four_voters",
		File: leaseFile,
		Old:  "\tif p == nil || p.until() <= 0 {\n\t\treturn 0, false\n\t}\n",
		New:  "\tif n := len(v.l.peers); n%2 == 1 && v.l.peers[n-1].id == id {\n\t\treturn quorum.Index(Forever), true\n\t}\n\tif p == nil || p.until() <= 0 {\n\t\treturn 0, false\n\t}\n",
	},
	{
		Rule: "L3", Name: "single-voter lease kept while growing", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestL3SoleVoterGrows$",
		File: leaseFile,
		Old:  "\tl.noteClocks()\n\tl.recompute()\n}\n", New: "\tl.noteClocks()\n\tif l.end != Forever {\n\t\tl.recompute()\n\t}\n}\n",
		More: []Edit{{
			File: leaseFile,
			Old:  "\tcase p.until() > l.end:\n", New: "\tcase p.until() > l.end && l.end != Forever:\n",
		}},
	},
	{
		Rule: "L4", Name: "the commit of an earlier term counts", Pkg: "./leaderlease/core", Test: "^TestTermsAreApart$",
		File: leaseFile,
		Old:  "\tl.ownCommit, l.clockFault, l.unrenewed = false, false, false\n", New: "\tl.clockFault, l.unrenewed = false, false\n",
	},
	{
		Rule: "L4", Name: "read before an own-term commit", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestL4OwnTermMustBeCommitted$",
		File: leaseFile,
		Old:  "case !l.ownCommit:", New: "case false:",
	},
	{
		Rule: "L4", Name: "a leader that is no voter keeps its lease", Pkg: rulesPkg, Test: "^TestL4LeaderMustBeVoter$",
		File: leaseFile,
		Old:  "case !l.IsVoter():", New: "case false:",
	},
	{
		Rule: "L5", Name: "initial configuration for ever", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestL5VotersFollowTheConfiguration$",
		File: "leaderlease/confchange.go",
		Old:  "\t\tl.setVotersLocked(cs, now)\n\t}\n\tdone :=", New: "\t}\n\tdone :=",
	},
	{
		Rule: "L5", Name: "the voters of a snapshot are ignored", Pkg: rulesPkg, Test: "^TestL5VotersFollowASnapshot$",
		File: "leaderlease/ready.go",
		Old:  "\t\tl.setVotersLocked(rd.Snapshot.GetMetadata().GetConfState(), now)\n", New: "",
	},
	{
		Rule: "L5", Name: "a change that is being applied does not refuse", Pkg: rulesPkg, Test: "^TestL5PendingChangeRefuses$",
		File: leaseFile,
		Old:  "case l.confPending:", New: "case false:",
	},
	{
		Rule: "L5", Name: "one call settles all changes that are in flight", Pkg: libPkg, Test: "^TestSeveralChangesInOneReady$",
		File: "leaderlease/confchange.go",
		Old:  "c.open, c.known = c.open[i+1:], index", New: "c.open, c.known = nil, index",
	},
	{
		Rule: "L5", Name: "a forgotten ApplyConfState goes unnoticed", Pkg: rulesPkg, Test: "^TestL5ForgottenApplyConfStateLeavesLeasesOff$",
		File: "leaderlease/confchange.go",
		Old:  "\t\tc.appliedPast = max(c.appliedPast, index)\n", New: "\t\tc.open = nil\n",
	},
	{
		Rule: "L5", Name: "changes that Storage has are waited for", Pkg: libPkg, Test: "^TestChangesThatStorageHasAreNotTold$",
		File: "leaderlease/lease.go",
		Old:  "\tmu.conf.known, mu.conf.stored = cfg.ConfIndex, cfg.ConfIndex\n", New: "",
	},
	{
		Rule: "L5", Name: "a change that Storage has not, says ApplyConfState, goes unnoticed", Pkg: libPkg, Test: "^TestAChangeThatStorageLacksContradictsConfIndex$",
		File: "leaderlease/confchange.go",
		Old:  "case index <= c.stored && c.known == c.stored:", New: "case index <= c.stored && false:",
	},
	{
		Rule: "L5", Name: "a change that is reported twice is not known", Pkg: libPkg, Test: "^TestTheLeaseCountsUnderWhatRaftEndsUpIn$",
		File: "leaderlease/confchange.go",
		Old:  "c.open, c.known = c.open[i+1:], index", New: "c.open = c.open[i+1:]",
	},
	{
		Rule: "L5", Name: "a second change leaves while the first is not applied", Pkg: rulesPkg, Test: "^TestL5TheSecondLateChangeWaits$",
		File: "leaderlease/outbound.go",
		Old:  "		return !l.mustHoldAppendLocked(m)", New: "		return true",
	},
	{
		Rule: "L5", Name: "a second change before the first is applied goes unnoticed", Pkg: rulesPkg, Test: "^TestL5TwoLateChangesAreAMisuse$",
		File: "leaderlease/confchange.go",
		Old:  "second != 0 && rule == \"\"", New: "second != 0 && rule != \"\"",
	},
	{
		Rule: "L5", Name: "a member with a change to apply asks for votes", Pkg: libPkg, Test: "^TestACandidateAppliesChangesFirst$",
		File: "leaderlease/confchange.go",
		Old:  "return waits && l.mu.appliedSeen", New: "return waits && false",
	},
	{
		Rule: "misuse", Name: "an Advance before ApplyConfState goes unnoticed", Pkg: libPkg, Test: "^TestAnAdvanceBeforeApplyConfStateIsNamed$",
		File: "leaderlease/checks.go",
		Old:  "	if !l.cfg.Raft.AsyncStorageWrites {\n", New: "	if false {\n",
	},
	{
		Rule: "misuse", Name: "answers without a round are served", Pkg: libPkg, Test: "^TestReadOnlyLeaseBasedIsNoticed$",
		File: "leaderlease/checks.go",
		Old:  "if !answers || c.answersExpected", New: "if !answers || true || c.answersExpected",
	},
	{
		Rule: "misuse", Name: "Readys of another node are followed", Pkg: libPkg, Test: "^TestReadysOfAnotherNodeAreRefused$",
		File: "leaderlease/checks.go",
		Old:  "if fromIsOwnID(m) && m.GetFrom() != l.id() {", New: "if false {",
	},
	{
		Rule: "V6", Name: "a log that New has not seen begins no hold", Pkg: libPkg, Test: "^TestStorageIsFilledBetweenNewAndTheNode$",
		File: "leaderlease/checks.go",
		Old:  "	l.mu.guard.Restarted(now, l.longest)\n", New: "",
	},
	{
		Rule: "V6", Name: "a late log holds for MaxPromise only", Pkg: libPkg, Test: "^TestALateStorageHoldsForTheSavedPromise$",
		File: "leaderlease/checks.go",
		Old:  "Restarted(now, l.longest)", New: "Restarted(now, l.cfg.MaxPromise)",
	},
	{
		Rule: "V6", Name: "the saved promise falls in a process without a restart hold", Pkg: libPkg, Test: "^TestALateStorageHoldsForTheSavedPromise$",
		File: "leaderlease/start.go",
		Old:  "	if !s.restarted {\n		return s.saved\n	}\n	return cfg.Duration\n", New: "	return cfg.Duration\n",
	},
	{
		Rule: "commit", Name: "a commit index hint is a heartbeat, which names no term", Pkg: libPkg, Test: "^TestAHintIsComparedWithRaftsLogAndNotTheDisk$",
		File: "leaderlease/commithint.go",
		Old:  "Type: raftpb.MsgApp.Enum(), From: new(m.GetFrom())", New: "Type: raftpb.MsgHeartbeat.Enum(), From: new(m.GetFrom())",
	},
	{
		Rule: "L5", Name: "a change is reported while an earlier one is being applied", Pkg: libPkg, Test: "^TestMissedChangesHeal$",
		File: "leaderlease/confchange.go",
		Old:  "if i < 0 || (i > 0 && c.open[i-1] > c.appliedPast) {", New: "if i < 0 {",
	},
	{
		Rule: "L5", Name: "one ApplyConfState too many goes unnoticed", Pkg: libPkg, Test: "^TestConfStateToldOnceTooOften$",
		File: "leaderlease/confchange.go",
		Old:  "\tif rule != \"\" {\n", New: "\tif false {\n",
	},
	{
		Rule: "L5", Name: "a late change is taken for the next", Pkg: libPkg, Test: "^TestConfStateIsMatchedByItsIndex$",
		File: "leaderlease/confchange.go",
		Old:  "return c.close(index) })", New: "return c.closeNext() })\n\t_ = index",
	},
	{
		Rule: "L6", Name: "lease kept in a transfer", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestL6LeaseEndsBeforeTheTransferLeaves$",
		File: leaseFile,
		Old:  "\tl.transferUntil = now.Add(l.p.TransferTimeout)\n\tl.Invalidate(now)\n\treturn Release{Term: l.term, At: l.after}\n",
		New:  "\treturn Release{Term: l.term, At: now}\n",
	},
	{
		Rule: "L6", Name: "the release does not ride on the forced vote", Pkg: rulesPkg, Test: "^TestL6ReleaseRidesOnTheForcedVote$",
		File: "leaderlease/outbound.go",
		Old:  "if r, ok := l.mu.guard.Released(m.GetTerm()); ok {", New: "if r, ok := l.mu.guard.Released(m.GetTerm()); false && ok {",
	},
	{
		Rule: "L6", Name: "probes go on during a transfer", Pkg: rulesPkg, Test: "^TestL6NoProbesWhileTransferring$",
		File: leaseFile,
		Old:  "!now.Valid() || now.Before(l.transferUntil) {\n\t\treturn Probe{}", New: "!now.Valid() {\n\t\treturn Probe{}",
	},
	{
		Rule: "L6", Name: "a release voids newer promises of its term", Pkg: rulesPkg, Test: "^TestL6LateTimeoutNowAfterAbort$",
		File: guardFile,
		Old:  "(g.promise.term == rel.Term && g.promise.sent <= rel.At)", New: "g.promise.term == rel.Term",
	},
	{
		Rule: "L6", Name: "a release voids promises of later terms", Pkg: rulesPkg, Test: "^TestL6WhatAReleaseCovers$/^an_earlier_term$",
		File: guardFile,
		Old:  "g.promise.term < rel.Term ||", New: "g.promise.term != rel.Term ||",
	},
	{
		Rule: "L6", Name: "a release does not cover earlier terms", Pkg: rulesPkg, Test: "^TestL6WhatAReleaseCovers$/^a_later_term",
		File: guardFile,
		Old:  "g.promise.term < rel.Term ||", New: "",
	},
	{
		Rule: "L6", Name: "a late probe undoes a release", Pkg: rulesPkg, Test: "^TestL6LateProbeDoesNotUndoTheRelease$",
		File: guardFile,
		Old:  "if term == g.release.Term && p.Sent <= g.release.At {", New: "if false {",
	},
	{
		Rule: "L6", Name: "lease resumed after an abort with grants from before", Pkg: rulesPkg, Test: "^TestL6OldGrantsDoNotCountAfterAbort$",
		File: leaseFile,
		Old:  "\tl.after = max(l.after, l.probed, now.Add(l.shift))\n", New: "\tl.after = max(l.after, 0*now)\n",
	},
	{
		Rule: "L7", Name: "Ready does not publish", Pkg: rulesPkg, Test: "^TestL7StepDownIsSeenBeforeTheVoteLeaves$",
		File: "leaderlease/ready.go",
		Old:  "\tdone = append(done, l.publishLocked(now)...)\n", New: "",
	},
	{
		Rule: "L7", Name: "role not checked after step-down", Sim: true, Trace: true, Pkg: rulesPkg, Test: "^TestL7StepDownIsSeenBeforeTheVoteLeaves$",
		File: "leaderlease/ready.go",
		Old:  "\t\tmu.ownIndex = 0\n\t\tmu.lease.StepDown()\n", New: "\t\tmu.ownIndex = 0\n",
	},
	{
		Rule: "L7", Name: "commit index from the entries handed out only", Pkg: rulesPkg, Test: "^TestL7CommitIndexIsSeenBeforeTheMessagesLeave$",
		File: "leaderlease/ready.go",
		Old:  "\t\tcommit = max(commit, rd.HardState.GetCommit())\n", New: "",
	},
	{
		Rule: "L7", Name: "Close is not published", Pkg: rulesPkg, Test: "^TestL7CloseAndInvalidateTakeEffectAtOnce$",
		File: "leaderlease/lease.go",
		Old:  "\tl.mu.lease.Close()\n\tdone := l.publishLocked(now)\n", New: "\tl.mu.lease.Close()\n\t_ = now\n\tvar done finished\n",
	},
	{
		Rule: "L8", Name: "grants of an earlier term count", Pkg: rulesPkg, Test: "^TestL8OldGrantsDoNotReviveTheLease$",
		File: leaseFile,
		Old:  "\tl.ownCommit, l.clockFault, l.unrenewed = false, false, false\n\tfor i := range l.peers {\n\t\tl.peers[i].forget()\n\t}\n", New: "\tl.ownCommit, l.clockFault, l.unrenewed = false, false, false\n",
	},
}

const (
	recoverFile = "leaderlease/recovercommit.go"
	hintFile    = "leaderlease/commithint.go"
)

// commitRules break how a node learns which configuration changes are committed: from its log
// at the start, and from answers to its candidacy.
var commitRules = []Mutant{
	{
		Rule: "storage", Name: "raft starts with the commit index as it is stored", Pkg: libPkg, Test: "^TestNewRawNodeRecoversTheCommitIndex$",
		File: "leaderlease/start.go",
		Old:  "\tnode, err := raft.NewRawNode(own)\n", New: "\town.Storage = raftConfig.Storage\n\tnode, err := raft.NewRawNode(own)\n",
	},
	{
		Rule: "storage", Name: "New takes any commit index", Pkg: libPkg, Test: "^TestNewRefusesACommitIndexBelowWhatTheLogProves$",
		File: "leaderlease/start.go",
		Old:  "if err := checkCommit(cfg.Raft.Storage, hard.GetCommit()); err != nil {", New: "if err := error(nil); err != nil {",
	},
	{
		Rule: "storage", Name: "changes of Bootstrap prove each other", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: recoverFile,
		Old:  "\t\tif e.GetTerm() == led {", New: "\t\tif e.GetTerm() >= led {",
	},
	{
		Rule: "storage", Name: "changes behind a snapshot prove nothing", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: recoverFile,
		Old:  "\tled := first > 1\n", New: "\tled := false\n",
	},
	{
		Rule: "storage", Name: "the way out of a joint configuration is no change", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: "leaderlease/confchange.go",
		Old:  "\treturn e.GetType() == raftpb.EntryConfChange || e.GetType() == raftpb.EntryConfChangeV2\n",
		New:  "\treturn e.GetType() == raftpb.EntryConfChange || e.GetType() == raftpb.EntryConfChangeV2 && len(e.GetData()) > 0\n",
	},
	{
		Rule: "storage", Name: "only a page of the log is read", Pkg: libPkg, Test: "^TestRecoverCommit$",
		File: recoverFile,
		Old:  "\t\tlo += uint64(len(entries))\n", New: "\t\tlo = hi\n",
	},
	{
		Rule: "membership", Name: "answers to candidates carry no commit index hint", Pkg: libPkg, Test: "^TestVoteAnswersSayWhatIsCommitted$",
		File: hintFile,
		Old:  "\t\tm.Commit, m.RejectHint = new(h.index), new(h.term)\n", New: "",
	},
	{
		Rule: "membership", Name: "a commit index hint for another entry is taken", Pkg: libPkg, Test: "^TestRaiseCommit$",
		File: hintFile,
		Old:  "err != nil || term != m.GetRejectHint() {", New: "err != nil || term == 0 {",
		// Raft compares the term of an append as well.
		More: []Edit{{hintFile, "Type: raftpb.MsgApp.Enum(), From: new(m.GetFrom())", "Type: raftpb.MsgHeartbeat.Enum(), From: new(m.GetFrom())"}},
	},
}

package core

import (
	"cmp"
	"time"

	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/internal/explore"
)

// The explorer searches every schedule of a small group, within bounds: the real
// Guard and Lease of each node, and around them an election reduced to what a lease
// depends on. A stage is one state of it. What is left out, and what the bounds are,
// is in docs/explorer.md.
type stage struct {
	b *bounds
	// actors are the nodes, with IDs from 1 on.
	actors [maxActors]actor
	// letters are under way. One that has arrived stays, since it may arrive again;
	// one is lost when another takes its place.
	letters [maxLetters]letter
	// led names who has won each term. It is a ghost: nobody knows all of it.
	led [maxTerms + 1]uint8
	// left is what may still happen of each kind of trouble.
	left budget
	// marks are the goals that the newest step has reached.
	marks explore.Marks

	confs *confTable
	axes  axes // of settle
}

const (
	maxActors  = 5
	maxLetters = 4
	maxTerms   = 4
)

// actor is one node: its disk, its process and its clock.
type actor struct {
	// dterm and dvote are on the disk. The others are lost in a crash.
	dterm, dvote, term, vote uint8
	role                     role
	// asking: a candidate's requests for votes may leave, since it was not bound when
	// it made them (V4), and so may its own vote (V5).
	asking bool
	// got is who has voted for this candidate, as far as it knows.
	got voters8
	// forced is the release of a candidacy that a transfer has caused.
	forced Release
	// mail is who has voted for this node in the term mailTerm, whether it knows or
	// not: the answers are under way, and arrive in any order, once more, or never.
	mail     voters8
	mailTerm uint8
	// log is on the disk, and so is conf, the configuration that was applied of it.
	log  logs
	conf conf
	// disk is the longest promise that is saved, saving what it is to be, 0 if nothing is
	// under way.
	disk, saving uint8

	now   Instant
	guard Guard
	lease Lease
	peers [maxActors]peer // of lease
	// run counts the processes before this one, where somebody hears of their deaths.
	run uint8

	// drift has, for each leader, what its clock may still gain or lose on the
	// promises that this node has made to it; see drift.
	drift [maxActors]drift
}

type role uint8

const (
	follower role = iota
	candidate
	leads
)

// voters8 is a set of nodes, a bit each.
type voters8 uint8

func (v voters8) has(i int) bool { return v>>i&1 != 0 }

func one(i int) voters8 { return 1 << i }

// conf is a configuration.
type conf struct{ in, out, learn voters8 }

func (c conf) votes(i int) bool { return (c.in | c.out).has(i) }

// wins reports whether the nodes in v are a quorum. It shares nothing with the
// quorum package.
func (c conf) wins(v voters8) bool { return half(c.in, v) && (c.out == 0 || half(c.out, v)) }

func half(of, v voters8) bool { return 2*count8(of&v) > count8(of) }

func count8(v voters8) (n int) {
	for ; v != 0; v &= v - 1 {
		n++
	}
	return n
}

// letter is a message under way.
type letter struct {
	kind     letterKind
	from, to uint8
	term     uint8
	// at is what it says: the instant that a probe was sent at, that a grant answers,
	// or that a release names.
	at Instant
	// of is the term of the release in a forced request for a vote, and the process of a probe, from 1 on.
	of uint8
}

type letterKind uint8

const (
	noLetter letterKind = iota
	probeLetter
	grantLetter
	handoverLetter // MsgTimeoutNow
	forcedLetter   // MsgVote that a transfer has caused
)

// budget bounds how often something happens in one run.
type budget struct{ crashes, transfers, jumps, backs, changes, resigns, obituaries uint8 }

// bounds are what is searched.
type bounds struct {
	name string
	// nodes of the group; all of them vote at first but learners.
	nodes, learners int
	// d, skew and transfer are the parameters, in units of the clocks.
	d, skew, transfer int
	// longest is the longest promise that anybody makes, d if 0.
	longest int
	// floor is what leaders of even terms ask for, and what is saved falls to; 0 if all ask
	// for d and nothing is saved. saved is what is saved at first.
	floor, saved int
	// turns are what leaders of the first term ask for, of the second and of the third, and of
	// the fourth again; of zeros if there are two durations.
	turns          [3]int
	terms, letters int
	budget         budget
	// settled begins with node 1 as leader of term 1, known to all and durable.
	settled bool
	// opening is what happens first, as one step.
	opening []explore.Step
	// boundCampaigns: raft campaigns also while the node is bound, and nothing leaves.
	boundCampaigns bool
	// apart lets the clocks begin far apart and leaves them so: for a rule that mixes
	// them up, which must not be helped by moving them together.
	apart bool
	// still lets no clock move.
	still bool
	// late begins with nobody who leads, and with a grant of a reign that has ended under
	// way to who led then, by a clock that has begun anew since.
	late bool
	// named tells states apart that differ by the names of nodes only: for a rule that
	// does.
	named  bool
	flaw   blunder
	limits explore.Limits
}

func (b *bounds) units(n int) time.Duration { return time.Duration(n) }

func (b *bounds) maxPromise() time.Duration { return b.units(cmp.Or(b.longest, b.d)) }

// widest is more than what is ever added to an instant, so gaps that are wider are
// the same.
func (b *bounds) widest() int { return max(b.d, b.transfer) + b.skew + 2 + int(2*b.budget.backs) }

// first is the configuration of a new group.
func (b *bounds) first() conf {
	return conf{in: 1<<(b.nodes-b.learners) - 1, learn: (1<<b.nodes - 1) &^ (1<<(b.nodes-b.learners) - 1)}
}

// asks is the promise that the leader of a term asks for.
func (b *bounds) asks(term uint8) time.Duration {
	switch {
	case b.turns[0] > 0:
		return b.units(b.turns[(term+2)%3])
	case b.floor > 0 && term%2 == 0:
		return b.units(b.floor)
	default:
		return b.units(b.d)
	}
}

func (b *bounds) params(id uint64, term uint8) Params {
	return Params{ID: id, Duration: b.asks(term), MaxClockSkew: time.Duration(b.skew), TransferTimeout: time.Duration(b.transfer)}
}

// confTable keeps what a configuration looks like to the library: by Voters, the
// real one.
type confTable [1 << maxActors][1 << maxActors][1 << maxActors]*libConf

type libConf struct {
	cfg quorum.JointConfig
	ids []uint64
}

func (t *confTable) of(c conf) *libConf {
	at := &t[c.in][c.out][c.learn]
	if *at == nil {
		cfg := Voters(&raftpb.ConfState{Voters: ids(c.in), VotersOutgoing: ids(c.out), Learners: ids(c.learn)})
		*at = &libConf{cfg, sortedVoters(cfg)}
	}
	return *at
}

func ids(v voters8) (ids []uint64) {
	for i := range maxActors {
		if v.has(i) {
			ids = append(ids, uint64(i+1))
		}
	}
	return ids
}

package raftsim

import (
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// Rules are steps that an embedder of raft takes beyond raft's documentation. The zero value is
// raft as it is.
type Rules struct {
	// HoldVotes (rule V9) moves a MsgVote from the messages of a Ready to the
	// responses of that Ready's MsgStorageAppend: it leaves when the candidate's
	// term and vote are durable.
	HoldVotes bool
	// DurableConf applies a configuration change only when a commit index that
	// covers it is durable. A flush of its own makes it so, in the order of the
	// log's writes.
	DurableConf bool
	// CompactByRaft compacts no entry that raft has not been told is applied.
	CompactByRaft bool
	// OwnTermReads lets no MsgReadIndex reach a leader that has committed nothing
	// in its term. Raft waits for that, but not if the leader is the only voter.
	OwnTermReads bool
	// QuietExit lets a leader append nothing after a change that removes its own vote.
	// Otherwise it may leave with a longer log than the remaining members, before they know
	// that the change is committed. Then they need its vote, it refuses, and no member can be
	// elected.
	QuietExit bool
	// HoldAppends sends a leader's entries only when they are durable, while a change of
	// configuration is under way. Otherwise a former voter, which never campaigns, may hold
	// entries that the leader has lost, and refuse the vote that the leader needs by the older
	// configuration.
	HoldAppends bool
	// RecoverCommit starts with the commit index that the log proves (see
	// leaderlease.RecoverCommit). Otherwise a follower may receive two changes in one append
	// and be killed before its disk knows that the first one is committed. It then starts in
	// the configuration before both, and is elected beside the leader.
	RecoverCommit bool
}

// AllRules returns the rules with which the simulator finds nothing.
func AllRules() Rules {
	return Rules{HoldVotes: true, DurableConf: true, CompactByRaft: true, OwnTermReads: true, QuietExit: true, HoldAppends: true, RecoverCommit: true}
}

// Config chooses a simulation. Only Seed is required.
type Config struct {
	// Seed decides everything that happens.
	Seed  uint64
	Rules Rules
	// Tolerate is a kind of violation that does not end the run, to see its consequences.
	Tolerate string
	// Duration is how much time passes with faults before everything is healed;
	// default 10 s.
	Duration time.Duration
	// Trace is how many of the last events are kept as text; default none, since
	// a run repeats.
	Trace int
	// RaftLog adds raft's own log lines to the trace.
	RaftLog bool
}

func (c Config) withDefaults() Config {
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	return c
}

// The scale of virtual time affects only how long a run takes.
const (
	tick         = 10 * time.Millisecond
	electionTick = 10
	// recovery is how long a healed cluster may take to commit something: sixty
	// election timeouts.
	recovery = 60 * electionTick * tick
)

// swarm is what a seed draws once. Fixed parameters hide bugs.
type swarm struct {
	voters, learners      int
	preVote, checkQuorum  bool
	heartbeatTick         int
	maxSize, maxCommitted uint64
	maxInflight           int

	disk, net, apply, tell time.Duration
	loss, double, late     float64

	checkpointEvery, keep uint64
	proposeEvery          time.Duration
	readEvery             time.Duration
	changeEvery           time.Duration
	faultEvery            time.Duration

	// The chances of targeted faults: that the disk of a candidate stalls, that the sender of a
	// message of type volatileType crashes before its data is durable, and that voters crash after
	// a member was switched off.
	slowCandidate, volatileCrash, afterRemoval float64
	volatileType                               raftpb.MessageType
	// slowTell is the chance that raft is told very late what is applied.
	slowTell float64

	// Drawn from a stream of their own: the kinds of disks, the chance that a crash tears a
	// write, and how often a follower is made to forget changes.
	disks     []diskKind
	tears     float64
	tornEvery time.Duration
}

// diskKind draws the kind of a member's disk.
func (w *swarm) diskKind(r *rand.Rand) diskKind { return pick(r, w.disks...) }

// drawTorn draws the kinds of disks and the chances of torn writes.
func (w *swarm) drawTorn(r *rand.Rand) {
	w.disks = pick(r, []diskKind{atomicBatches}, []diskKind{oneLog}, []diskKind{separateFiles},
		[]diskKind{separateFiles, oneLog}, []diskKind{separateFiles, oneLog, atomicBatches})
	w.tears = pick(r, 0, 0.3, 1)
	if len(w.disks) > 1 || w.disks[0] != atomicBatches {
		w.tornEvery = between(r, 200*time.Millisecond, 2*time.Second)
	}
}

func drawSwarm(r *rand.Rand) swarm {
	w := swarm{
		voters: pick(r, 1, 2, 2, 3, 3, 3, 3, 4, 5), learners: pick(r, 0, 0, 1),
		preVote: chance(r, 0.75), checkQuorum: chance(r, 0.75),
		heartbeatTick: pick(r, 1, 1, 2, 3),
		maxSize:       pick(r, uint64(0), 64, 1<<20), maxCommitted: pick(r, uint64(1), 64, 1<<20, 1<<20),
		maxInflight: pick(r, 1, 4, 256),
		disk:        between(r, 0, 4*time.Millisecond), net: between(r, time.Millisecond/2, 6*time.Millisecond),
		apply: between(r, 0, 10*time.Millisecond), tell: between(r, 0, 10*time.Millisecond),
		loss: pick(r, 0, 0, 0.01, 0.1), double: pick(r, 0, 0.02, 0.2), late: pick(r, 0, 0.02, 0.1),
		checkpointEvery: pick(r, uint64(3), 10, 30), keep: pick(r, uint64(0), 0, 3, 20),
		proposeEvery: between(r, 5*time.Millisecond, 40*time.Millisecond),
		readEvery:    between(r, 10*time.Millisecond, 60*time.Millisecond),
		changeEvery:  between(r, 200*time.Millisecond, 3*time.Second),
		faultEvery:   between(r, 100*time.Millisecond, 800*time.Millisecond),

		slowCandidate: pick(r, 0, 0.3, 0.7), volatileCrash: pick(r, 0, 0.3, 0.7), afterRemoval: pick(r, 0, 0.5, 0.9),
		volatileType: pick(r, raftpb.MsgVote, raftpb.MsgVote, raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgHeartbeatResp,
			raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgReadIndexResp, raftpb.MsgSnap, raftpb.MsgTimeoutNow),
		slowTell: pick(r, 0, 0.05, 0.2),
	}
	return w
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}

// soon draws a time around mean, seldom much longer.
func soon(r *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(min(r.ExpFloat64(), 8) * float64(mean))
}

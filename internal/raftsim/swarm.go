package raftsim

import (
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// Virtual time has a scale of its own: nothing depends on it but how long a run
// takes.
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
	// message of type tempting crashes before its data is durable, and that voters crash after
	// a member was switched off.
	slowCandidate, tempted, afterRemoval float64
	tempting                             raftpb.MessageType
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

// drawTorn draws what the disks of a run do.
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

		slowCandidate: pick(r, 0, 0.3, 0.7), tempted: pick(r, 0, 0.3, 0.7), afterRemoval: pick(r, 0, 0.5, 0.9),
		tempting: pick(r, raftpb.MsgVote, raftpb.MsgVote, raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgHeartbeatResp,
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

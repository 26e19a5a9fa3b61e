// Package sim runs a leasetest.Cluster on what it draws from a seed: the
// parameters of the run (a [Swarm]), what goes wrong (numbered faults and recipes,
// which are faults put together for one rule each), and what clients do. A seed
// always makes the same run, so a failure repeats.
//
//	func TestMyDisk(t *testing.T) {
//		for seed := range uint64(100) {
//			sim.Run(t, sim.Config{Seed: seed, NewDisk: newMyDisk}).Require(t)
//		}
//	}
//
// Config.NewMachine takes an embedder's own leasetest.Machine. One that keeps
// checkpoints of its own is killed and comes back behind its log, finds writes in
// its checkpoint that the log holds as well, and is restored from a peer's while the
// process dies.
//
// # What a simulation checks
//
//   - stale: no read, by any path, shows less than an operation that was
//     completed before it began, nor an older state of the whole
//   - disjoint: once a node has won an election, no node of an older term passes
//     its own lease check, not even one that is paused
//   - guard: at the instant of the decision, a bound node lets no request for a
//     vote in and none of its votes out
//   - raft: one process leads a term, equal entries, states and answers at each index,
//     also after a crash, no acknowledged write lost, and what a log proves to be
//     committed was applied by some node
//   - porcupine: each key's history is linearizable
//   - liveness: after healing, with every member up and everybody else switched
//     off, a leader is elected and serves at least 99 of 100 reads under its lease;
//     not where the nodes are bare (Swarm.Bare)
//   - trace, with Config.Trace: each event that a Lease has traced is a step that the
//     rules allow (package leasetrace)
//   - misuse and panic: neither happens
//
// A failing run is made small by [Minimise] and kept as text, see [Schedule].
//
// # What crashes take
//
// A seed draws the kind of each node's disk: files of their own for entries and hard
// state, one log, or writes that are atomic ([leasetest.DiskKind]). On the first two a
// crash can leave the entries of a Ready without its hard state; on the first, a commit
// index that came alone is lost. Nodes start with the commit index that their log proves
// (leaderlease.RecoverCommit). Config.NewDisk replaces these disks.
//
// # What it assumes
//
// Clocks keep within the bound of the run, and a leader's clock counts the time
// in which it was paused. Fields of Swarm break either on purpose: a simulation
// that finds nothing then is not worth much.
//
// # Where to find it
//
// sim.go builds the cluster and runs it, load.go is its clients, schedule.go and
// swarm.go are what a seed means, fault*.go what goes wrong, recipe*.go faults for
// one rule each, oracle*.go what is judged, minimise.go how a failure is made small,
// result.go and trace.go what is left of a run.
package sim

// Package sim runs a leasetest.Cluster with random parameters (a [Swarm]), numbered faults,
// recipes, which are sequences of faults for one rule each, and client requests. All of them
// are drawn from a seed. A seed always makes the same run, so a failure repeats.
//
//	func TestMyDisk(t *testing.T) {
//		for seed := range uint64(100) {
//			sim.Run(t, sim.Config{Seed: seed, NewDisk: newMyDisk}).Require(t)
//		}
//	}
//
// Config.NewMachine takes an embedder's own leasetest.Machine. The simulation kills a durable
// machine, so that it comes back behind its log, gets entries again that its checkpoint
// includes, and dies while it is restored from a peer's snapshot.
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
//   - liveness: after healing, with all members up and all other nodes switched off, a
//     leader is elected and serves at least 99 of 100 reads under its lease, unless the
//     nodes are bare (Swarm.Bare)
//   - trace, with Config.Trace: the rules allow each traced event (package leasetrace)
//   - misuse and panic: neither happens
//
// # Raft alone
//
// [Schedule.RunRaftAlone] has all nodes run bare RawNodes with AsyncStorageWrites and without
// leases. It adds faults that aim at data which is not durable. The raft oracle then also
// requires that granted votes and acknowledged appends are durable when they leave, and the stale
// oracle judges raft's own ReadIndex. With all of [leasetest.Rules] nothing is violated, and
// without any one of them something is: docs/raft-durability.md has the cases.
//
// [Minimise] reduces a failing run, and its [Schedule] can be kept as text.
//
// # What crashes lose
//
// A seed draws the kind of each node's disk: files of their own for entries and hard
// state, one log, or writes that are atomic ([leasetest.DiskKind]). On the first two a
// crash can leave the entries of a Ready without its hard state; on the first, a commit
// index that came alone is lost. Nodes start with the commit index that their log proves
// (leaderlease.RecoverCommit). Config.NewDisk replaces these disks.
//
// # What it assumes
//
// Clocks keep within the bound of the run, and a leader's clock counts the time in which it
// was paused. Fields of Swarm break each assumption on purpose, and the oracles must then find
// violations.
//
// # Files
//
// sim.go builds and runs the cluster, load.go makes the client requests, schedule.go draws the
// parameters and the faults, fault*.go and recipe*.go implement the faults, raftalone.go runs raft
// without leases, oracle*.go checks the run, minimise.go reduces a failure, and result.go has the
// counts and the time line.
package sim

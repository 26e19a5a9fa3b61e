// Package leasetest tests leader leases, and whatever embeds them, in virtual
// time: one goroutine, one event heap, real raft nodes with real Leases, and a
// clock, a disk and a network that the test controls.
//
// A [Cluster] is driven step by step. [Simulate] draws everything from a seed
// instead: the parameters of the run (a [Swarm]), what goes wrong (numbered
// faults and recipes, which are faults put together for one rule each), and
// what clients do. A seed always makes the same run, so a failure repeats.
//
//	func TestMyDisk(t *testing.T) {
//		for seed := range uint64(100) {
//			leasetest.Simulate(t, leasetest.SimConfig{Seed: seed, NewDisk: newMyDisk}).Require(t)
//		}
//	}
//
// A [Machine] is what nodes apply their log to; SimConfig.NewMachine takes an
// embedder's own. One that keeps checkpoints of its own is killed and comes back
// behind its log, finds writes in its checkpoint that the log holds as well, and
// is restored from a peer's while the process dies.
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
//     also after a crash, no acknowledged write lost
//   - porcupine: each key's history is linearizable
//   - liveness: after healing, with every member up and everybody else switched
//     off, a leader is elected and serves at least 99 of 100 reads under its lease
//   - misuse and panic: neither happens
//
// A failing run is made small by [Minimise] and kept as text, see [Schedule].
//
// # What it assumes
//
// Clocks keep within the bound of the run, and a leader's clock counts the time
// in which it was paused. Fields of Swarm break either on purpose: a simulation
// that finds nothing then is not worth much.
package leasetest

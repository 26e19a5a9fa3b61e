// Package leasetest tests leader leases, and whatever embeds them, in virtual
// time: one goroutine, one event heap, real raft nodes with real Leases, and a
// clock, a disk and a network that the test controls.
//
// A [Cluster] is driven step by step, by a test or by a script ([RunScript]). A
// [Disk] is what a node's log is kept on, a [Machine] what its log is applied to:
// NewDisk and NewMachine take an embedder's own. Package
// leaderlease/leasetest/sim drives the same cluster by what it draws from a seed.
package leasetest

// Package leasetest tests leader leases and their embedders in virtual time: real raft
// nodes with real Leases run in one goroutine with one event heap, and the test controls
// their clocks, disks and network.
//
// A test or a script ([RunScript]) drives a [Cluster] step by step. A [Disk] stores a
// node's log, and a [Machine] applies it; Options.NewDisk and Options.NewMachine replace
// them with an embedder's own. Package leaderlease/leasetest/sim drives the same cluster
// with random faults from a seed.
package leasetest

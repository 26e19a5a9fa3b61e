// Package inproc runs a cluster of three kvnode members in this process, with
// real logs on disk and a network in memory whose round-trip time can be set,
// and is a load.Target for the whole linearizable read: the question whether the
// state machine may answer, and the answer.
//
// There is no gRPC and no client's network. What a peer costs is what the round
// trip says; with a round trip of zero the links are faster than loopback TCP,
// which favours the reads that need peers.
package inproc

// Package raftexample tests lease.patch, which puts the lease into etcd's
// raftexample, as docs/embedding.md tells it: its commands, its pieces of the
// patch, real processes. It exports nothing.
package raftexample

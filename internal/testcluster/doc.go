// Package procs runs the members of a cluster as processes on loopback: kvnode,
// or etcd, which takes the same flags. Each member has a directory, ports and a
// log of its own, and can be stopped, killed, paused, woken, restarted and wiped.
// The demo, the benchmarks and the end-to-end tests start members with it.
package testcluster

// Package procs runs a cluster of server processes on loopback: kvnode, or
// etcd, which takes the same flags. Each member has a directory, ports and a log
// of its own, and can be killed, paused, woken, restarted and wiped.
package procs

// Package kvnode is one member of a replicated key-value store: raft with a
// leader lease (package leaderlease), its log on disk (raftwal), an MVCC state
// machine (store) and links to its peers (transport). Package etcdapi serves
// the etcd v3 API on top of it, package server adds listeners and operations.
//
//	n, err := kvnode.Start(kvnode.Config{Name: "n1", DataDir: dir, Cluster: members, Listener: l})
//	res, err := n.Propose(ctx, &pb.InternalRaftRequest{Put: put}) // replicated, then applied
//	r, err := n.Read(ctx, kvnode.ReadAuto)                        // then read n.Store()
//
// # Goroutines
//
// The loop (loop.go, ready.go) owns raft; what others want of it they put into calls. The
// appender (raftwal.Appender) makes what raft wants to keep durable, the applier (apply.go)
// applies what is committed, the checkpointer (checkpoint.go) makes the applied state durable
// and shortens the log. They hand work to each other through boxes and never wait for the
// loop, except for the applier at a configuration change.
//
// # The way of a renewal
//
// The loop ticks, raft emits heartbeats, Lease.Ready stamps them, the transport
// sends them on a stream of their own. At the peer Lease.Incoming takes the
// promise on arrival, raft answers, Lease.Ready adds the grant. Back here
// Lease.Incoming counts it, on arrival again (peers.go).
//
// # The way of a read
//
// Read asks the lease; if it is valid and the state machine is up to date, that
// is all. If not, the Lease shares one quorum round among all reads that wait.
//
// # The way of a write
//
// Propose registers a waiter and puts an encoded command into a box. The loop
// proposes all that is there as one message, raft hands it to the appender and
// to the peers at the same time, and the applier wakes the waiter with the
// result.
package kvnode

// Package etcdapi serves the etcd v3 API on a kvnode.Node. etcdctl, clientv3 and programs built
// on them work with a kvnode member unmodified.
//
// # Invariants
//
//   - Requests are validated as etcd validates them and rejected with etcd's errors (package
//     rpctypes), because clients match error texts.
//   - A value is read from the store after the node has permitted the read, never before. Without
//     that permission it fails, with Unavailable if clientv3 is to retry it.
//   - Every member serves every request except MoveLeader. Every response header carries cluster ID, member ID,
//     revision and term.
//   - A panic in a handler fails that request with Internal. It does not end the process.
//   - A unary request has a deadline and a size limit, and counts towards MaxInFlight. Defragment
//     has no deadline. WaitingMethods have none either, and do not count.
//
// # Linearizable reads
//
// kvnode.Config.ReadMode is the default. A request selects another mode with the metadata
// x-lease-read: auto, lease, read-index, log or serializable. All but auto take precedence over
// RangeRequest.serializable. The trailers x-lease-read-path and, under a lease,
// x-lease-remaining-ms report how the read was served (see Config.TrailersOnDemand).
//
// # Watches
//
// A watch stream uses one goroutine that receives requests and one that does everything else. The second one takes
// events from its watch.Stream when the transport can send more. So a client that does not read costs at most what
// package watch allows, and delays no other client. When events or progress arrive, the watcher has all events up to
// the revision in their header. In etcd this header has the newest revision, even if older events are still to
// be sent.
//
// # Fast
//
// A stream of the service Fast carries many KV requests of a client, and their answers, for package
// fastkv (fast.go). It saves gRPC's cost of a call.
//
// # Requests for the leader
//
// Only the leader knows the remaining time of a TTL lease and the progress of a learner. Another
// member forwards such a request to the leader's client URLs, at most one hop, and retries while
// leadership moves (forward.go).
//
// # Not supported
//
// Authentication is always off, and the lists of users and roles are empty (auth.go). Requests to
// change them, and downgrades, return Unimplemented. Package concurrency implements the services Lock and
// Election.
//
// # Use
//
//	api := etcdapi.New(node, etcdapi.Config{})
//	s := grpc.NewServer(api.ServerOptions()...)
//	api.RegisterFast(s) // unless interceptors of s authorize calls
//	api.Register(s)
//	go s.Serve(listener)
//	...
//	api.StopFastStreams() // before s.GracefulStop, which waits for fastkv's streams
//	s.GracefulStop()
//
// Handler and Gateway serve HTTP on another listener.
package etcdapi

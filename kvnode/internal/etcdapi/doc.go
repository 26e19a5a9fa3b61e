// Package etcdapi serves the etcd v3 API over a kvnode.Node, so that etcdctl,
// clientv3 and everything built on them work against a kvnode unmodified.
//
// # What is promised
//
//   - A request is validated as etcd validates it and refused with etcd's own
//     errors (package rpctypes), since clients recognise errors by their text.
//   - A value is fetched after its read was permitted, never before. A read that
//     could not be permitted fails with Unavailable, which clientv3 retries.
//   - Any member takes any request. Every reply carries a header with cluster,
//     member, revision and term.
//   - A request cannot end the process: a panic under it becomes Internal.
//   - Every unary request has a deadline, a size and a place among a bounded
//     number of others.
//
// # How a read is made linearizable
//
// The member has a default (kvnode.Config.ReadMode). One request may ask for
// something else with the metadata x-lease-read: auto, lease, read-index, log
// or serializable; it goes before RangeRequest.serializable. The trailers
// x-lease-read-path and, under a lease, x-lease-remaining-ms say how the read
// was served (see Config.TrailersOnDemand).
//
// # How a watch is served
//
// A stream of watchers is one goroutine that receives, and one that does the
// rest: it takes news from its watch.Stream when the transport has room for
// more. A client that does not read costs what a watch.Limits allows, and holds
// up nobody. The revision in the header of a reply is one up to which the
// watcher has got everything; etcd sends the newest revision there even if more
// is to come.
//
// # What only the leader can answer
//
// How much time is left of a TTL lease, and how far a learner is, the leader alone
// knows. Another member passes such a request on to the leader's client URLs,
// once, and tries again while leadership moves (forward.go).
//
// # What is missing
//
// Downgrades, and the administration of users and roles (auth.go), answer
// Unimplemented: authentication is always off. The Lock and Election services are
// package concurrency's.
//
// # Using it
//
//	api := etcdapi.New(node, etcdapi.Config{})
//	s := grpc.NewServer(api.ServerOptions()...)
//	api.RegisterFast(s) // for package fastkv, unless s has interceptors of its own
//	api.Register(s)
//	go s.Serve(listener)
//	...
//	api.EndStreams() // before s.GracefulStop, which waits for fastkv's streams
//	s.GracefulStop()
//
// Handler and Gateway are for a second listener, which speaks HTTP.
package etcdapi

// Package etcdapi serves the etcd v3 API over a kvnode.Node, so that etcdctl,
// clientv3 and everything built on them work against a kvnode unmodified.
//
// # What is promised
//
//   - A request is validated as etcd validates it and refused with etcd's own
//     errors (package rpctypes), since clients recognise errors by their text.
//   - A value is fetched after its read was admitted, never before. A read that
//     could not be admitted fails with Unavailable, which clientv3 retries.
//   - Any member takes any request. Every reply carries a header with cluster,
//     member, revision and term.
//   - A request cannot end the process: a panic under it becomes Internal.
//   - Every unary request has a deadline, a size and a place among a bounded
//     number of others.
//
// # How a read is made linearizable
//
// The listener has a default (kvnode.Config.ReadMode). One request may ask for
// something else with the metadata x-lease-read: auto, lease, read-index, log
// or serializable; it goes before RangeRequest.serializable. The trailers
// x-lease-read-path and, under a lease, x-lease-remaining-ms say how the read
// was served (see Config.TrailersOnDemand).
//
// # What is missing
//
// Watch and the TTL leases answer Unimplemented (watch.go, lease.go), as do
// changes of membership (cluster.go), downgrades, and the administration of
// users and roles (auth.go): authentication is always off.
//
// # Using it
//
//	api := etcdapi.New(node, etcdapi.Config{})
//	s := grpc.NewServer(api.ServerOptions()...)
//	api.Register(s)
//	go s.Serve(listener)
//
// Handler and Gateway are for a second listener, which speaks HTTP.
package etcdapi

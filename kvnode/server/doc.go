// Package server runs a kvnode.Node as a server: listeners, etcd's gRPC API, HTTP pages, metrics
// and an orderly stop.
//
//	srv, err := server.Start(server.Config{Node: kvnode.Config{Name: "a", DataDir: "a.kvnode"}})
//	if err != nil { … }
//	<-srv.Ready() // a linearizable read has been served
//	defer srv.Stop(ctx)
//
// # Invariants
//
//   - Start binds all listeners or none. After an error nothing is left but the data directory.
//   - Stop first turns readiness off, then rejects new requests, lets those in progress finish
//     while there is time, transfers leadership, and stops the node.
//   - If the node fails, Done is closed and Err returns the reason. The process should then
//     exit: only a new start of the node shows what is durable.
//
// gRPC clients use grpc-go's own transport, which is several times faster than gRPC through
// net/http. The pages are served on the client URLs or on listeners of their own:
//
//	/metrics            Prometheus
//	/version /health    as in etcd
//	/livez /readyz      as in etcd; ?verbose, ?exclude=check, /readyz/check
//	/status             the member, with its lease, as JSON (package status)
//	/lease              the cluster's leases, unless DisableLeasePage (client HTTP URLs only)
//	/v3/…               etcd's JSON gateway (client HTTP URLs only)
//	/v3beta/…           the same, under etcd 3.3's name
//	/debug/vars         the process's expvar, as in etcd (client HTTP URLs only)
//	/debug/pprof/       with EnablePprof (client HTTP URLs only)
package server

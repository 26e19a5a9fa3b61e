// Package server runs a kvnode.Node as a server: listeners, etcd's gRPC API,
// HTTP pages, metrics and an orderly stop.
//
//	srv, err := server.Start(server.Config{Node: kvnode.Config{Name: "a", DataDir: "a.kvnode"}})
//	if err != nil { … }
//	<-srv.Ready() // a linearizable read has been served
//	defer srv.Stop(ctx)
//
// # What it promises
//
//   - Start has bound every listener, or none: an error leaves nothing behind
//     but the data directory.
//   - Stop is orderly: not ready any more, no new requests, those under way
//     finish while there is time, leadership is transferred, the node stops.
//   - If the node fails, Done is closed and Err says why. The process should
//     end then: what is durable is known when the node has started again.
//
// Clients speak gRPC on a listener of its own, by grpc-go's own transport, since
// through net/http it is several times slower. Everything for people, curl and
// Prometheus is on other listeners, which are off unless they are asked for:
//
//	/metrics            Prometheus
//	/version /health    as etcd answers
//	/livez /readyz      as etcd answers; ?verbose, ?exclude=check, /readyz/check
//	/status             the member, with its lease, as JSON (package status)
//	/v3/…               etcd's JSON gateway (listen-client-http-urls only)
//	/v3beta/…           the same, as etcd 3.3 called it
//	/debug/vars         the process's expvar, as in etcd (listen-client-http-urls only)
//	/debug/pprof/       with EnablePprof (listen-client-http-urls only)
package server

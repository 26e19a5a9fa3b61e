// Package fastkv sends the requests of clientv3's KV over one stream.
//
// A gRPC call costs both sides many times as much as a read under a lease. After
//
//	err := fastkv.Use(client)
//
// all gets, puts, deletes and transactions of client that wait at the same time share one
// message, and so do their answers. The more goroutines use the client, the less each request
// costs. Call Use before anything is built on the client, such as a session, and before its KV is
// wrapped, for example in a namespace. Use fails on a wrapped KV, because it would drop the
// wrapper.
//
// # What does not change
//
// Each request has its own deadline and metadata, can be cancelled, passes the same checks and
// limits as a call, and fails with the same code and text. Answers do not wait for each other:
// large ones are sent in pieces.
//
//   - A read that fails with Unavailable is repeated as a call, which clientv3 retries as usual.
//   - A write that was sent is not repeated. If its stream ends, it fails with Unavailable and
//     its outcome is unknown. But a member that stops reports the last request that it has
//     received, and answers the requests up to it. The later ones had no effect, and the client
//     makes them as calls.
//   - Compact, RangeStream, requests above 64 KiB and requests with options about the call
//     itself (trailers, peer) are calls.
//   - Interceptors, for example for tracing, see the stream and not its requests.
//
// # Which member the stream connects to
//
// All requests, including serializable reads, go to one member. The client opens a new stream
// when the current one ends, when it is silent for a second while an answer is due, and when its
// member is not the leader. With DialOptions of package client the next stream connects to the
// leader, otherwise to the next endpoint. Without a stream, requests are calls. This is always
// the case with servers that do not know the service, such as etcd. The client tries such a
// server again every ten seconds.
package fastkv

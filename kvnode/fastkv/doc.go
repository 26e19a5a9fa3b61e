// Package fastkv carries the requests of clientv3's KV over one stream.
//
// A call of gRPC costs both sides many times what a read under a lease does. After
//
//	err := fastkv.Use(client)
//
// all gets, puts, deletes and transactions of client that wait at the same time leave in
// one message, and their answers come back so: the more goroutines use the client, the
// less each request costs. Call it before anything is made of the client, such as a session,
// and before its KV is wrapped, in a namespace say: Use fails on a KV that is, as the wrapper
// would be lost.
//
// # What stays as it is
//
// Each request has its own deadline, can be cancelled, passes the same checks and limits as
// a call, and fails with the same code and text. Metadata go with it. Answers do not wait
// for each other: large ones come in pieces.
//
//   - A read that becomes Unavailable is repeated by a call, which clientv3 repeats as ever.
//   - A write that was sent is not repeated: if its stream ends it is Unavailable, and its
//     outcome unknown. But a member that stops says which requests it has taken, and answers
//     those. The others had no effect, so the client makes them by calls.
//   - Compact, RangeStream, requests above 64 KiB and those with options that look into a
//     call (trailers, peer) are calls.
//   - Interceptors of calls, such as those of tracing, see the stream and not its requests.
//
// # Where the stream goes
//
// To one member, so serializable reads go there, too. It is made anew when it ends, when it
// is silent for a second though an answer is due, and when its member does not lead: with
// DialOptions of package client the next one goes to the leader, else to the next endpoint.
// While there is none, requests are calls. That is always so of a server which does not know
// the service, such as etcd: it is asked every ten seconds.
package fastkv

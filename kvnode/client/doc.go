// Package client lets an unmodified clientv3 send requests to the leader.
//
// clientv3 sends requests to its endpoints in turn. Every kvnode member answers all of them, but
// a follower asks the leader first. That costs a round trip and three times the CPU time of a
// read. With
//
//	clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: client.DialOptions()})
//
// linearizable reads, writes and requests about TTL leases and members go to the leader.
// Serializable reads, watches, keep-alives and maintenance go to the endpoints in turn, as
// before.
//
// # How it finds the leader
//
// The header of each kvnode response names the answering member and the leader. The client does not
// use the URLs that members advertise, so proxies may translate names and addresses. While the
// leader's endpoint is unknown, not connected, or not among the client's endpoints, requests go
// in turn. This is always the case for servers that do not name their leader, such as etcd.
//
// The choice of the member changes how long a request takes, never its result: every member
// answers linearizably. A request is sent once, to one member. clientv3 decides about retries as
// before, except for writes with an unknown outcome (DialOptions).
//
// If a request to an endpoint fails with Unavailable or DeadlineExceeded, that endpoint does not
// count as the leader's for a second, whatever other members report: it may be stuck, or
// unreachable from this client only. The deadline of a wait for a lock does not count.
package client

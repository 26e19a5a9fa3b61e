// Package client lets an unmodified clientv3 find the leader.
//
// clientv3 sends requests to its endpoints in turn. Each member of kvnode answers all of
// them, but a follower has to ask the leader first, which costs both a round trip and three
// times the processor time of a read. With
//
//	clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: client.DialOptions()})
//
// what the leader answers best goes to it: linearizable reads, writes, what concerns TTL
// leases and members. All else goes round as before: serializable reads, watches,
// keep-alives, maintenance.
//
// # How the leader is found
//
// Each response of kvnode tells in its header who has answered and who leads. Endpoints are
// told apart by that alone and never by what members advertise, so names and addresses may be
// translated on the way. As long as the leader's endpoint is not known, has no connection, or
// is none of the client's endpoints, requests go round; of a server that does not name its
// leader, as etcd's, that is always so.
//
// Which member a request is sent to changes how long it takes and never what it is answered:
// each member answers linearizably. A request is sent to one member, once: what is tried
// again, clientv3 decides as before.
//
// An endpoint that lets a request fail with Unavailable or DeadlineExceeded is not taken for
// the leader's for a second, whatever the others say: it may hang, or be cut off from this
// client alone. Who has waited for a lock until its deadline says nothing about that.
package client

// Package wire loads any etcd v3 endpoint with etcd's own client, so that the
// same code measures kvnode and etcd. It can also run a cluster of server
// processes on loopback, of any program that takes etcd's flags.
//
// A read says how it wants to be served in its metadata (x-lease-read), which
// etcd ignores, and kvnode's trailers say how it was served.
package wire

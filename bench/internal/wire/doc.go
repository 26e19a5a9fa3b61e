// Package wire loads any etcd v3 endpoint with etcd's own client, so that the
// same code measures kvnode and etcd.
//
// A read says in its metadata (x-lease-read) how the server should serve it. etcd
// ignores that; kvnode's trailers say how it served the read.
package wire

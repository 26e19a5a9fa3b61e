// Etcdsuites runs etcd's own tests against kvnode: those of
// go.etcd.io/etcd/tests/v3 that start etcd as a program (common and e2e), with
// kvnode in the place of the program, and etcd's own etcdctl and etcdutl.
//
// known.txt says of each test that cannot pass why it cannot. The run fails if
// a test fails that is not there, and if one passes, or is gone, that is there.
//
//	make etcd-suites
//	cd kvnode/etcdsuites && go run . -only TestLease -v
package main

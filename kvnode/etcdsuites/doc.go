// Etcdsuites runs etcd's own tests, go.etcd.io/etcd/tests/v3, against kvnode.
//
// Those that start etcd as a program (common, e2e) get kvnode in its place, and
// etcd's own etcdctl, etcdutl and proxies. Those that embed etcd (integration)
// get a framework that starts kvnode as a process: see patch.go.
//
// known.txt says of each test that cannot pass why it cannot. The run fails if
// a test fails that is not there, and if one passes, or is gone, that is there.
//
// With -fastkv the clients of integration's tests send by kvnode/fastkv, each of
// them, since clientv3 is patched as well: see fast.go. known_fastkv.txt adds to
// the list.
//
//	make etcd-suites
//	make etcd-suites-fastkv
//	cd kvnode/etcdsuites && go run . -suites e2e -only TestCtlV3 -logs DIR
package main

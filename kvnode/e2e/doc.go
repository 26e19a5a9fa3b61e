// Package e2e holds the tests that run kvnode as its users do: processes with
// disks and sockets of their own, killed, stopped and woken by signals, driven
// by an unmodified etcdctl and by etcd's Go client.
//
// It is a module of its own, so that programs that embed the library do not
// require etcdctl, or etcd itself.
//
// # What is compared with etcd
//
// What etcdctl prints, in testdata/etcdctl, is what it prints against etcd:
//
//	go test -run TestEtcdctl . -args -servers=etcd -rewrite
//
// writes those files, and each run of the tests holds kvnode to them. All but
// the tests of kvnode's own promises pass against etcd as well, which shows that
// they ask for what etcd does and that the harness can tell:
//
//	go test . -args -servers=kvnode,etcd
package e2e

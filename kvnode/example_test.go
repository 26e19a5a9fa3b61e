package kvnode_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode"
)

// One member by itself: a write goes through the log, a read is admitted by the lease
// and then answered by the store. Package server adds etcd's API to it.
func Example() {
	dir, err := os.MkdirTemp("", "kvnode-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	node, err := kvnode.Start(kvnode.Config{
		Name: "n1", DataDir: dir + "/data", Listener: listener, SegmentSize: 1 << 20,
		Cluster: []kvnode.Member{{Name: "n1", PeerURLs: []string{"http://" + listener.Addr().String()}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer func() { _ = node.Stop(ctx) }()
	if _, err := node.Read(ctx, kvnode.ReadAuto); err != nil { // waits for a leader
		log.Fatal(err)
	}

	put := &pb.PutRequest{Key: []byte("greeting"), Value: []byte("hello")}
	if _, err := node.Propose(ctx, &pb.InternalRaftRequest{Put: put}); err != nil {
		log.Fatal(err)
	}
	read, err := node.Read(ctx, kvnode.ReadAuto) // first ask, then look
	if err != nil {
		log.Fatal(err)
	}
	kv, revision := node.Store().Get([]byte("greeting"))
	fmt.Printf("%s at revision %d, read by path %s\n", kv.GetValue(), revision, read.Path)

	// Output: hello at revision 2, read by path lease
}

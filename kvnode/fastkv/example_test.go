package fastkv_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/fastkv"
	"github.com/leaderlease/go/kvnode/server"
)

// A client of a cluster with one member. After Use, the methods of clientv3 send their requests on
// one stream.
func Example() {
	dir, err := os.MkdirTemp("", "fastkv-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	srv, err := startMember(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = srv.Stop(ctx) }()

	client, err := clientv3.New(clientv3.Config{Endpoints: srv.ClientAddrs()})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := fastkv.Use(client); err != nil {
		log.Fatal(err)
	}

	if _, err := client.Put(ctx, "greeting", "hello"); err != nil {
		log.Fatal(err)
	}
	resp, err := client.Get(ctx, "greeting")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s at revision %d\n", resp.Kvs[0].GetValue(), resp.Header.GetRevision())

	// Output: hello at revision 2
}

// startMember starts a cluster of one member on free ports and waits until it serves reads.
func startMember(dir string) (*server.Server, error) {
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners[i] = l
	}
	cfg := server.Config{ClientListener: listeners[1]}
	cfg.Node.DataDir, cfg.Node.SegmentSize, cfg.Node.Listener = dir+"/data", 1<<20, listeners[0]
	srv, err := server.Start(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-srv.Ready():
		return srv, nil
	case <-srv.Done():
		return nil, srv.Err()
	}
}

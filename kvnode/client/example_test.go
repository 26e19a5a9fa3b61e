package client_test

import (
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/client"
)

// An unmodified clientv3 sends its reads and writes to the leader.
func ExampleDialOptions() {
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"127.0.0.1:2379", "127.0.0.1:2381", "127.0.0.1:2383"},
		DialOptions: client.DialOptions(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	fmt.Println(len(c.Endpoints()), "endpoints, and requests go to the leader's")
	// Output: 3 endpoints, and requests go to the leader's
}

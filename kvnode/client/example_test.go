package client_test

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/client"
)

// An unmodified clientv3, whose reads and writes go to the leader.
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := c.Put(ctx, "greeting", "hello"); err != nil {
		fmt.Println(err)
	}
}

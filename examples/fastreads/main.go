// Fastreads reads one key from a hundred goroutines at a time, by a stream.
//
//	go run ./cmd/kvnode demo    # and in another terminal
//	go run ./examples/fastreads ADDRESS...    # those of its ETCDCTL_ENDPOINTS, with blanks for commas
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/fastkv"
)

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, endpoints []string) error {
	// embed:begin
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: client.DialOptions()})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := fastkv.Use(c); err != nil { // all else is clientv3 as it is
		return err
	}
	// embed:end

	if _, err := c.Put(ctx, "greeting", "hello"); err != nil {
		return err
	}
	var wg sync.WaitGroup
	answers := make(chan string, 100)
	for range 100 {
		wg.Go(func() {
			resp, err := c.Get(ctx, "greeting") // linearizable, under the leader's lease
			if err != nil || len(resp.Kvs) != 1 {
				answers <- fmt.Sprintf("%v, %v", resp, err)
				return
			}
			answers <- string(resp.Kvs[0].GetValue())
		})
	}
	wg.Wait()
	close(answers)
	counts := make(map[string]int)
	for a := range answers {
		counts[a]++
	}
	_, err = fmt.Fprintln(out, counts)
	return err
}

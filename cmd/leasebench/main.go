// Command leasebench measures what a leader lease buys: lease reads against
// every other way to serve a linearizable read, in the process, over the wire,
// and beside a running etcd; and locks, watches and TTL leases beside etcd's.
// leasebench --help explains each arm.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(streams{out: os.Stdout, err: os.Stderr})
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "leasebench:", err)
		return 1
	}
	return 0
}

// Command leasebench measures what a leader lease buys: lease reads against
// every other way to serve a linearizable read, in the process, over the wire,
// and beside a running etcd.
// leasebench --help explains each arm.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(streams{out: os.Stdout, err: os.Stderr})
	return execute(ctx, root, args, os.Stderr)
}

// execute returns the exit code: 2 if the command line is wrong, and 1 for any other
// failure.
func execute(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	began := false
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "leasebench:", err) //nolint:errcheck // stderr is the last resort
	if began {
		return 1
	}
	return 2
}

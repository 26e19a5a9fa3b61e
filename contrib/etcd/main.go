// Command etcd puts the leader lease into etcd and tries it.
//
//	go run ./contrib/etcd build DIR      etcd with lease.patch in DIR, and etcd as it is
//	go run ./contrib/etcd suites DIR     suites of etcd's own tests with the gate on; -run and -packages choose
//
// The sources are those that the module proxy has for the version in
// bench/etcd/go.mod. A replace directive takes the library from the checkout.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "contrib/etcd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	which := flags.String("run", "", "suites: the tests to run, a regular expression")
	packages := flags.String("packages", "./integration", "suites: packages of go.etcd.io/etcd/tests, separated by commas")
	if len(args) == 0 {
		return fmt.Errorf("want one of: build DIR, suites DIR")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%s wants one directory, has %q", args[0], flags.Args())
	}
	switch args[0] {
	case "build":
		return build(ctx, flags.Arg(0))
	case "suites":
		return suites(ctx, flags.Arg(0), *which, strings.Split(*packages, ","))
	default:
		return fmt.Errorf("%q is none of: build, suites", args[0])
	}
}

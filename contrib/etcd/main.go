// Command etcd adds the leader lease to etcd and tests it.
//
//	go run ./contrib/etcd build DIR      etcd with lease.patch, and unpatched etcd, in DIR
//	go run ./contrib/etcd suites DIR     suites of etcd's own tests with the gate on; -run and -packages choose
//
// The sources come from the module proxy, at the version in
// bench/etcd/go.mod. A replace directive takes the library from the checkout.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/leaderlease/go/contrib/internal/upstream"
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

// suites runs etcd's own tests against a server that has the gate on by default.
func suites(ctx context.Context, dir, which string, packages []string) error {
	t, err := newTree(dir)
	if err != nil {
		return err
	}
	if err := t.patched(ctx, "server-on"); err != nil {
		return err
	}
	if err := turnOn(t.At("server-on", "features", "etcd_features.go")); err != nil {
		return err
	}
	if err := t.fetch(ctx, testsModule, "tests"); err != nil {
		return err
	}
	if err := t.use(ctx, "tests", "server-on"); err != nil {
		return err
	}
	// It needs a module that the proxy does not serve in this version.
	if err := os.Remove(t.At("tests", "integration", "cache_test.go")); err != nil {
		return err
	}
	return t.Show(ctx, "tests", "go", append([]string{"test", "-count=1", "-v", "-timeout=60m", "-run=" + which}, packages...)...)
}

// turnOn makes the gate's default true: etcd's tests name no gates.
func turnOn(name string) error {
	const of = gate + ":             {Default: "
	return upstream.Replace(name, of+"false", of+"true")
}

const (
	serverModule = "go.etcd.io/etcd/server/v3"
	testsModule  = "go.etcd.io/etcd/tests/v3"
	etcdVersion  = "v3.7.3"
	gate         = "LeaderLeaseReads"
)

// tree is a directory in which etcd is built with the patch.
type tree struct{ *upstream.Tree }

// build leaves the patched and the unpatched etcd in dir, as etcd-lease and etcd-stock.
func build(ctx context.Context, dir string) error {
	t, err := newTree(dir)
	if err != nil {
		return err
	}
	if err := t.patched(ctx, "server"); err != nil {
		return err
	}
	if err := t.Copy("program", "bench/etcd/go.mod", "bench/etcd/go.sum", "bench/etcd/main.go"); err != nil {
		return err
	}
	if err := t.Run(ctx, "program", "go", "build", "-o", t.At("etcd-stock"), "."); err != nil {
		return err
	}
	if err := t.use(ctx, "program", "server"); err != nil {
		return err
	}
	return t.Run(ctx, "program", "go", "build", "-o", t.At("etcd-lease"), ".")
}

func newTree(dir string) (tree, error) {
	t, err := upstream.New(dir)
	return tree{t}, err
}

// patched puts the sources of etcd's server, with the patch, into a directory.
func (t tree) patched(ctx context.Context, name string) error {
	if err := t.fetch(ctx, serverModule, name); err != nil {
		return err
	}
	return t.Patch(ctx, name, "contrib/etcd/lease.patch")
}

// fetch copies the sources of a module. Its other dependencies come from the proxy.
func (t tree) fetch(ctx context.Context, module, name string) error {
	if err := t.Fetch(ctx, module+"@"+etcdVersion, name); err != nil {
		return err
	}
	edit := []string{"mod", "edit"}
	for _, neighbour := range []string{"api", "cache", "client/pkg", "client", "etcdctl", "etcdutl", "pkg", "server"} {
		edit = append(edit, "-dropreplace=go.etcd.io/etcd/"+neighbour+"/v3")
	}
	return t.Run(ctx, name, "go", edit...)
}

// use makes the module in dir use the patched server.
func (t tree) use(ctx context.Context, dir, server string) error {
	if err := t.Run(ctx, dir, "go", "mod", "edit", "-replace="+serverModule+"=../"+server); err != nil {
		return err
	}
	return t.Use(ctx, dir)
}

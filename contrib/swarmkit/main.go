// Command swarmkit adds the leader lease to swarmkit and tests it.
//
//	go run ./contrib/swarmkit [-rounds 30] [-suites REGEXP] [-bench 6] DIR
//
// It builds swarmkit in DIR, checks that reads are linearizable while leaders are
// cut off, and that the check finds planted faults. -suites runs swarmkit's own tests
// with the lease on, -bench measures the reads of each kind in turns, that many times.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/leaderlease/go/contrib/internal/upstream"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "contrib/swarmkit:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rounds := flag.Int("rounds", 30, "faults that the check makes")
	which := flag.String("suites", "", "swarmkit's own tests to run, a regular expression")
	count := flag.Int("bench", 0, "how often to measure")
	flag.Parse()
	if flag.NArg() != 1 {
		return fmt.Errorf("want one directory, have %q", flag.Args())
	}
	t, err := upstream.New(flag.Arg(0))
	if err != nil {
		return err
	}
	if err := build(ctx, t); err != nil {
		return err
	}
	if err := check(ctx, t, *rounds); err != nil {
		return err
	}
	if *which != "" {
		if err := suites(ctx, t, *which); err != nil {
			return err
		}
	}
	return bench(ctx, t, *count)
}

// check runs the tests of testdata, which must pass with the lease. They must fail in unpatched
// swarmkit, and with a lease that does not expire.
func check(ctx context.Context, t *upstream.Tree, rounds int) error {
	args := []string{"-test.run=^(TestLeaderReadsAreLinearizable|TestALoneManagerRestarts)$", "-test.v", "-rounds=" + strconv.Itoa(rounds)}
	if err := t.Show(ctx, logs, t.At("lease.test"), args...); err != nil {
		return err
	}
	for _, control := range [][]string{{"lease.test", "-lease-off"}, {"fault.test"}} {
		err := t.Run(ctx, logs, t.At(control[0]), append(args, control[1:]...)...)
		if err == nil || !stale(err) {
			return fmt.Errorf("negative control %q: want operations that are not those of one copy, got: %w", control, err)
		}
		fmt.Printf("negative control %q: found\n", control)
	}
	return nil
}

// option is the line of the patch that checks whether the lease is on.
const option = "if !n.opts.LeaderLease {"

// suites runs swarmkit's own tests with the lease on by default, since they set no options.
func suites(ctx context.Context, t *upstream.Tree, which string) error {
	if err := upstream.Replace(t.At(source, raftPackage, "lease.go"), option, "if false {"); err != nil {
		return err
	}
	return t.Show(ctx, source, "go", "test", "-vet=off", "-count=1", "-timeout=20m", "-run="+which, "./"+raftPackage,
		"./"+raftPackage+"/transport", "./"+raftPackage+"/membership", "./manager", "./manager/dispatcher", "./node")
}

// bench measures in turns, so that other load on the machine affects all kinds alike.
func bench(ctx context.Context, t *upstream.Tree, count int) error {
	for range count {
		if err := t.Show(ctx, logs, t.At("lease.test"), "-test.run=^$", "-test.bench=^BenchmarkLeaderRead$", "-test.benchtime=1s"); err != nil {
			return err
		}
	}
	return nil
}

const (
	swarmkit    = "github.com/moby/swarmkit/v2@v2.0.0"
	source      = "swarmkit" // in the tree
	logs        = "logs"     // where tests run
	raftPackage = "manager/state/raft"
)

// The planted fault is a lease that does not expire.
const (
	faultIn = "core/view.go"
	sound   = "v.Status == Valid && v.From <= now && now < v.Usable"
	faulty  = "v.Status == Valid && v.From <= now"
)

// build builds the tests of swarmkit with the lease: lease.test, and
// fault.test, which has the fault in the library.
func build(ctx context.Context, t *upstream.Tree) error {
	if err := t.Fetch(ctx, swarmkit, source); err != nil {
		return err
	}
	if err := raft37(ctx, t); err != nil {
		return err
	}
	if err := t.Patch(ctx, source, "contrib/swarmkit/raft37.patch", "contrib/swarmkit/lease.patch"); err != nil {
		return err
	}
	tests, err := filepath.Glob("contrib/swarmkit/testdata/*_test.go")
	if err != nil {
		return err
	}
	if err := t.Copy(filepath.Join(source, raftPackage), tests...); err != nil {
		return err
	}
	if err := t.Run(ctx, source, "go", "build", "./..."); err != nil {
		return err
	}
	test := []string{"test", "-vet=off", "-c", "./" + raftPackage, "-o"}
	if err := t.Run(ctx, source, "go", append(test, t.At("lease.test"))...); err != nil {
		return err
	}
	if err := t.Fault(ctx, source, faultIn, sound, faulty); err != nil {
		return err
	}
	if err := t.Run(ctx, source, "go", append(test, t.At("fault.test"))...); err != nil {
		return err
	}
	return t.Use(ctx, source)
}

// raft37 lets swarmkit require raft 3.7 and etcd's log for it. raft37.patch has the rest.
func raft37(ctx context.Context, t *upstream.Tree) error {
	if err := os.MkdirAll(t.At(logs), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(t.At(source, "vendor")); err != nil {
		return err
	}
	return t.Run(ctx, source, "go", "mod", "edit", "-go=1.26", "-droprequire=go.etcd.io/etcd/raft/v3",
		"-require=go.etcd.io/raft/v3@v3.7.0", "-require=go.etcd.io/etcd/server/v3@v3.7.1",
		"-require=go.etcd.io/etcd/pkg/v3@v3.7.1", "-require=go.etcd.io/etcd/client/pkg/v3@v3.7.1",
		"-require=github.com/anishathalye/porcupine@v1.1.0")
}

// stale reports whether a test has found reads that are not linearizable.
func stale(err error) bool {
	return strings.Contains(err.Error(), "Illegal: ") && strings.Contains(err.Error(), "are not those of one copy")
}

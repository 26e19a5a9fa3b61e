// Etcdsuites runs etcd's own tests, go.etcd.io/etcd/tests/v3, against kvnode.
//
// Suites that start etcd as a program (common, e2e) get kvnode in its place, and
// etcd's own etcdctl, etcdutl and proxies. Suites that embed etcd (integration)
// get a framework that starts kvnode as a process; edits in build.go patch them.
// The robustness tests judge what clients saw by etcd's model and kvnode's log.
//
// known.txt lists the tests that cannot pass, with the reasons. The run fails if
// another test fails, and if a listed test passes or no longer exists.
//
// With -fastkv every client of the integration tests sends by kvnode/fastkv: clientv3
// is patched by fastEdits in build.go. known_fastkv.txt adds to the list.
//
//	make etcd-suites
//	make etcd-suites-fastkv
//	cd kvnode/etcdsuites && go run . -suites e2e -only TestCtlV3 -logs DIR
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// allSuites are the suites that use a server. The suites of etcd's in-process code are left out:
// embed, snapshot, v2store.
const allSuites = "common,e2e,integration,integration/clientv3,integration/clientv3/concurrency," +
	"integration/clientv3/connectivity,integration/clientv3/experimental/recipes,integration/clientv3/lease," +
	"integration/clientv3/naming,integration/clientv3/watch," + robustness

func main() {
	suites := flag.String("suites", "", "comma-separated suites of "+testsModule+"; default: all that meet a server")
	fast := flag.Bool("fastkv", false, "have the tests' clients send by package fastkv, and run by default those that have clients in Go")
	only := flag.String("only", ".", "run the tests with names that match this `regexp`")
	count := flag.Int("count", 1, "run each test `n` times; it fails if one of them fails")
	logs := flag.String("logs", "", "write what each test says to a file in this `directory`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *suites == "" && *fast {
		*suites = fastSuites
	}
	if *logs != "" {
		*logs, _ = filepath.Abs(*logs) // the tests run elsewhere
	}
	b := bench{logs: *logs, fast: *fast, count: *count}
	ok, err := b.suitesRun(ctx, strings.Split(cmp.Or(*suites, allSuites), ","), *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdsuites:", err)
	}
	if !ok {
		os.Exit(1)
	}
}

// suitesRun runs the suites and prints the outcomes.
func (b bench) suitesRun(ctx context.Context, suites []string, only string) (bool, error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return false, fmt.Errorf("-only: %w", err)
	}
	names := []string{"known.txt"}
	if b.fast {
		names = append(names, "known_fastkv.txt")
	}
	list, err := openKnown(suites, names...)
	if err != nil {
		return false, err
	}
	if b.dir, err = os.MkdirTemp("", "etcdsuites"); err != nil {
		return false, fmt.Errorf("a directory to work in: %w", err)
	}
	defer os.RemoveAll(b.dir)
	if err := b.furnish(ctx, suites); err != nil {
		return false, err
	}
	begin := time.Now()
	r, err := b.all(ctx, suites, match, list)
	if err != nil {
		return false, err
	}
	v := judge(r.outcomes, list, only == ".")
	report{verdict: v, suites: suites, output: r.output, took: time.Since(begin)}.print(os.Stdout)
	return v.ok(), nil
}

// openKnown reads the lists of known failures of the suites.
func openKnown(suites []string, names ...string) (known, error) {
	var lists bytes.Buffer
	for _, name := range names {
		list, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return nil, fmt.Errorf("the known reasons: %w", err)
		}
		lists.Write(list)
	}
	all, err := readKnown(&lists)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(names, " and "), err)
	}
	list := known{}
	for _, suite := range suites {
		for test, cause := range all {
			if strings.HasPrefix(test, suite+" ") {
				list[test] = cause
			}
		}
	}
	return list, nil
}

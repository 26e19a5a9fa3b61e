package main

import (
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

// allSuites are those that meet a server. Left out are those of etcd's code in
// process: embed, snapshot, v2store.
const allSuites = "common,e2e,integration,integration/clientv3,integration/clientv3/concurrency," +
	"integration/clientv3/connectivity,integration/clientv3/experimental/recipes,integration/clientv3/lease," +
	"integration/clientv3/naming,integration/clientv3/watch"

func main() {
	suites := flag.String("suites", allSuites, "comma-separated suites of "+testsModule)
	only := flag.String("only", ".", "run the tests whose names match this `regexp`")
	logs := flag.String("logs", "", "write what each test says to a file in this `directory`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := suitesRun(ctx, strings.Split(*suites, ","), *only, *logs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdsuites:", err)
	}
	if !ok {
		os.Exit(1)
	}
}

// suitesRun runs the suites and prints what became of them.
func suitesRun(ctx context.Context, suites []string, only, logs string) (bool, error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return false, fmt.Errorf("-only: %w", err)
	}
	list, err := openKnown("known.txt", suites)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "etcdsuites")
	if err != nil {
		return false, fmt.Errorf("a directory to work in: %w", err)
	}
	defer os.RemoveAll(dir)
	b := bench{dir: dir, logs: logs}
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

// openKnown reads what the list says of the suites.
func openKnown(name string, suites []string) (known, error) {
	f, err := os.Open(filepath.Clean(name))
	if err != nil {
		return nil, fmt.Errorf("the known reasons: %w", err)
	}
	defer f.Close()
	all, err := readKnown(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
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

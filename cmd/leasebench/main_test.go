package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/bench/suite"
	"github.com/leaderlease/go/bench/wire"
)

// TestMain lets the test binary stand in for leasebench when it starts itself as
// a server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == memberCommand {
		os.Exit(run(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// leasebench runs the command and returns what it prints.
func leasebench(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	root := newRoot(streams{out: &o, err: &e})
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// tiny are flags that make every measurement short.
func tiny(args ...string) []string {
	return append(args, "--rounds=1", "--warmup=5ms", "--duration=20ms")
}

func TestEachSubcommandMeasures(t *testing.T) {
	for _, c := range []struct {
		name    string
		args    []string
		want    []string
		network bool
	}{
		{"check", tiny("check"), []string{"try-read", "raft-safe"}, false},
		{"stale", tiny("stale", "--trials=5"), []string{"ReadOnlyLeaseBased", "leaderlease"}, false},
		{"cluster", tiny("cluster", "--rtt=0s", "--clients=4", "--keys=16"), []string{"read-index", "follower", "caught"}, false},
		{"failover", tiny("failover", "--fault=kill", "--tick=20ms", "--before=100ms", "--after=500ms"), []string{"rawnode", "wire"}, true},
		{"wire", tiny("wire", "--clients=2", "--keys=16"), []string{"read-index", "lease 100%", "kvnode: 3 members"}, true},
	} {
		t.Run("command="+c.name, func(t *testing.T) {
			if c.network && testing.Short() {
				t.Skip("starts servers")
			}
			dir := t.TempDir()
			out, progress, err := leasebench(t, append(c.args, "--out="+dir, "--name=r")...)
			if err != nil {
				t.Fatalf("leasebench %v: %v\n%s%s", c.args, err, progress, out)
			}
			for _, want := range append(c.want, "commit:", "machine:") {
				if !strings.Contains(out, want) {
					t.Errorf("leasebench %v does not print %q:\n%s", c.args, want, out)
				}
			}
			if files, err := filepath.Glob(filepath.Join(dir, "r.*")); err != nil || len(files) != 4 {
				t.Errorf("files %v, %v, want text, benchstat, JSON and HTML", files, err)
			}
			if again, _, err := leasebench(t, "report", filepath.Join(dir, "r.json")); err != nil || again != out {
				t.Errorf("report of the JSON differs, %v:\n%s", err, again)
			}
		})
	}
}

// Two kvnode clusters under other names stand in for etcd.
func TestCompareMeasuresTwoServers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := leasebench(t, tiny("compare", "--clients=2", "--keys=16", "--start=other="+self+","+memberCommand)...)
	if err != nil {
		t.Fatalf("compare: %v\n%s", err, out)
	}
	for _, want := range []string{"kvnode-read-index", "kvnode-lease", "other-linearizable", "other-serializable", "other-put"} {
		if !strings.Contains(out, want) {
			t.Errorf("compare does not print %q:\n%s", want, out)
		}
	}
}

// Locks are measured where there are TTL leases, and refused by name elsewhere.
func TestLocksAreMeasuredOrRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	out, _, err := leasebench(t, tiny("locks", "--clients=2", "--members=1")...)
	switch {
	case err == nil && strings.Contains(out, "kind=contended"):
	case errors.Is(err, wire.ErrNoTTLLeases) && strings.Contains(out, "no TTL leases"):
	default:
		t.Errorf("locks = %v, want measurements or %v:\n%s", err, wire.ErrNoTTLLeases, out)
	}
}

func TestAllPlansEveryPart(t *testing.T) {
	s := suite.New()
	c := &common{quick: true}
	if err := c.planAll(newAll(c), s, &serverFlags{}); err != nil {
		t.Fatal(err)
	}
	plan := s.Names()
	if s.Takes() > 150*time.Second {
		t.Errorf("leasebench all --quick takes %v, want about two minutes", s.Takes())
	}
	for _, part := range []string{"stale:", "check:", "cluster:", "audit:", "failover:", "wire:"} {
		if !slices.ContainsFunc(plan, func(step string) bool { return strings.HasPrefix(step, part) }) {
			t.Errorf("leasebench all --quick does not plan %q", part)
		}
	}
}

func TestHelpExplainsEachArm(t *testing.T) {
	out, _, err := leasebench(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	arms := []string{
		"try-read", "try-read-of-16", "lease-clock", "time-now", "rwmutex-time-now", "raft-lease-based", "raft-safe",
		"read-index", "lease", "log", "serializable", "follower", "rawnode", "kvnode-read-index", "PEER-linearizable",
	}
	for _, arm := range arms {
		if !strings.Contains(out, arm) {
			t.Errorf("--help does not explain %s", arm)
		}
	}
	if strings.Contains(out, "  "+memberCommand+" ") {
		t.Error("--help shows what is for the benchmark's own use")
	}
}

func TestBadFlagsAreRefusedByNameAndLimit(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"wire", "--peer=etcd"}, `"etcd" must be NAME=`},
		{[]string{"wire", "--start==x"}, `"=x" must be NAME=`},
		{[]string{"wire", "--peer=a=1:1", "--peer=b=1:2"}, "one server, not 2"},
		{[]string{"compare"}, "--peer NAME=ENDPOINTS"},
		{[]string{"compare", "--peer=a=1:1", "--peer=a=1:2"}, "twice"},
		{[]string{"cluster", "--clients=0"}, "clients 0 must be in [1, 10000]"},
		{[]string{"cluster", "--rtt=1h"}, "1h0m0s must be in [0, 300ms]"},
		{[]string{"cluster", "--keys=0"}, "keys 0"},
		{[]string{"cluster", "--rounds=0"}, "rounds 0"},
		{[]string{"stale", "--trials=0"}, "trials 0"},
		{[]string{"failover", "--fault=flood"}, "flood"},
		{[]string{"failover", "--tick=1us"}, "tick 1µs"},
		{[]string{"locks", "--members=0"}, "members 0 must be in [1, 9]"},
		{[]string{"report", "nowhere.json"}, "nowhere.json"},
		{[]string{"check", "more"}, "more"},
	} {
		if _, _, err := leasebench(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("leasebench %v = %v, want an error with %q", c.args, err, c.want)
		}
	}
}

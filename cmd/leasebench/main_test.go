package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/bench"
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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		args    []string
		want    []string
		network bool
	}{
		{"stale", tiny("stale", "--trials=5"), []string{"ReadOnlyLeaseBased", "leaderlease"}, false},
		{"failover", tiny("failover", "--death=kill", "--start="+kvnodeName+"="+self+","+memberCommand), []string{"kill -9, 3 members", "writes", "all samples"}, true},
		{"size", tiny("size", "--keys=200", "--start="+kvnodeName+"="+self+","+memberCommand), []string{
			"kvnode: 3 members", "2,000 puts", "2 watch streams on 2 connections", "200 keys are loaded", "RSS of a member", "longest stall of a get",
			"count of 200", "a new member has them after", "from the start to a read", "20 keys × 10 versions", "compaction --physical of 180 versions",
		}, true},
		{"compare", tiny("compare", "--clients=2", "--keys=16", "--start=other="+self+","+memberCommand), []string{
			"kvnode-read-index", "lease 100%", "kvnode: 3 members", "kvnode-lease", "kvnode-log", "other-linearizable", "other-serializable", "other-put",
		}, true},
	} {
		t.Run("command="+c.name, func(t *testing.T) {
			if c.network && testing.Short() {
				t.Skip("starts servers")
			}
			dir := t.TempDir()
			out, progress, err := leasebench(t, append(c.args, "--out="+dir)...)
			if err != nil {
				t.Fatalf("leasebench %v: %v\n%s%s", c.args, err, progress, out)
			}
			for _, want := range append(c.want, "commit:", "machine:") {
				if !strings.Contains(out, want) {
					t.Errorf("leasebench %v does not print %q:\n%s", c.args, want, out)
				}
			}
			if files, err := filepath.Glob(filepath.Join(dir, "*-leasebench-"+c.name+".txt")); err != nil || len(files) != 1 {
				t.Errorf("files %v, %v, want one", files, err)
			}
		})
	}
}

// Without etcd it says how to get one. An error about a program that cannot be started names the program.
func TestSizeSaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := bench.New()
	f := sizeFlags{keys: 100}
	if err := f.add(s, quickTiming(), false); err != nil {
		t.Fatal(err)
	}
	if len(s.Report.Notes) != 1 || !strings.Contains(s.Report.Notes[0], "go build -C bench/etcd") {
		t.Errorf("notes %q, want how to build etcd", s.Report.Notes)
	}
	if slices.ContainsFunc(s.Names(), func(step string) bool { return strings.Contains(step, "etcd") }) {
		t.Errorf("the plan has etcd: %q", s.Names())
	}
	_, _, err := leasebench(t, tiny("size", "--start=kvnode=nowhere", "--start=etcd=nothing")...)
	if err == nil || !strings.Contains(err.Error(), "start kvnode") || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("size with a kvnode that is not there: %v, want an error that names it", err)
	}
}

func TestSizesAreMeasuredInTurnOnServersThatBeginEmpty(t *testing.T) {
	s := bench.New()
	f := sizeFlags{serverFlags: serverFlags{starts: []string{"etcd=etcd"}}, keys: sizeKeys}
	if err := f.add(s, sizeTiming(true), true); err != nil {
		t.Fatal(err)
	}
	if s.Takes() > 150*time.Second {
		t.Errorf("leasebench size --quick takes %v, want about two minutes", s.Takes())
	}
	want := []string{
		"size: round 1, start kvnode, keys", "size: round 1, start etcd, keys",
		"size: round 1, keys, kvnode", "size: round 1, keys, etcd",
		"size: round 1, keys after a rest, etcd", "size: round 1, keys after a rest, kvnode",
		"size: round 1, scans, kvnode", "size: round 1, scans, etcd",
		"size: round 1, a new member, etcd", "size: round 1, a new member, kvnode",
		"size: round 1, a restart, kvnode", "size: round 1, a restart, etcd", "size: find the leader again", "size: stop",
	}
	plan := s.Names()
	from := max(slices.Index(plan, want[0]), 0)
	if !slices.Equal(plan[from:min(from+len(want), len(plan))], want) {
		t.Errorf("the plan is %q, want it to have %q", plan, want)
	}
}

func TestAllPlansEveryPart(t *testing.T) {
	s := bench.New()
	if err := planAll(t.Context(), s, quickTiming(), &serverFlags{}, true); err != nil {
		t.Fatal(err)
	}
	plan := s.Names()
	if s.Takes() > 90*time.Second {
		t.Errorf("leasebench all --quick takes %v, want about a minute", s.Takes())
	}
	for _, part := range []string{"stale:", "cluster:", "audit:", "failover:", "compare:"} {
		if !slices.ContainsFunc(plan, func(step string) bool { return strings.HasPrefix(step, part) }) {
			t.Errorf("leasebench all --quick does not plan %q", part)
		}
	}
}

func TestHelpSaysWhereFilesGo(t *testing.T) {
	for _, command := range []string{"compare", "cluster", "stale"} {
		if out, _, err := leasebench(t, command, "--help"); err != nil || !strings.Contains(out, "default: none, the text is only printed") {
			t.Errorf("%s --help does not say that files are written with --out only (%v):\n%s", command, err, out)
		}
	}
}

func TestHelpExplainsEachArm(t *testing.T) {
	out, _, err := leasebench(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	arms := []string{
		"read-index", "lease", "log", "serializable", "follower", "kvnode-read-index", "PEER-linearizable",
		"kvnode-three-endpoints", "PEER-serializable", "PEER-put", "fastkv",
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
		{[]string{"compare", "--peer=etcd"}, `"etcd" must be NAME=`},
		{[]string{"compare", "--start==x"}, `"=x" must be NAME=`},
		{[]string{"compare", "--peer=a=1:1", "--peer=a=1:2"}, "twice"},
		{[]string{"cluster", "--clients=0"}, "clients 0 must be in [1, 10000]"},
		{[]string{"cluster", "--rtt=1h"}, "1h0m0s must be in [0, 300ms]"},
		{[]string{"cluster", "--keys=0"}, "keys 0"},
		{[]string{"cluster", "--rounds=0"}, "rounds 0"},
		{[]string{"stale", "--trials=0"}, "trials 0"},
		{[]string{"failover", "--death=age"}, `"age" must be one of [kill`},
		{[]string{"failover", "--members=4"}, "members 4 must be 3 or 5"},
		{[]string{"size", "--keys=99"}, "keys 99 must be in [100, 10000000]"},
		{[]string{"cluster", "more"}, "more"},
	} {
		if _, _, err := leasebench(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("leasebench %v = %v, want an error with %q", c.args, err, c.want)
		}
	}
}

// An error names the mistake, and the exit code says that nothing was measured.
func TestWrongUsage(t *testing.T) {
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"foo", `unknown command "foo" for "leasebench"`, 2},
		{"compar", "compare", 2},
		{"cluster --round 1", "unknown flag: --round", 2},
		{"cluster more", "more", 2},
		{"cluster --rounds 0", "rounds", 1},
		{"", "", 0},
	} {
		var out, errs bytes.Buffer
		root := newRoot(streams{out: &out, err: &errs})
		code := execute(t.Context(), root, strings.Fields(test.args), &errs)
		if code != test.code || !strings.Contains(errs.String(), test.want) {
			t.Errorf("leasebench %s = %d %s, want %d and %q", test.args, code, errs.String(), test.code, test.want)
		}
	}
}

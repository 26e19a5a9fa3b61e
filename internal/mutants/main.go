// Command mutants plants the bugs of its tables one by one and checks that a test
// catches each (docs/reliability.md). The source tree is not touched: a mutant is
// compiled through go build's -overlay.
//
//	go run ./internal/mutants                 all of them
//	go run ./internal/mutants -sim=false      those that a directed test catches
//	go run ./internal/mutants -only 'L6|half' mutants with a matching rule or name
//	go run ./internal/mutants -table wal      those of one table
//
// With -generated it makes mutants of its own, by the operators of operators.go,
// and runs the short tests of the package they are in:
//
//	go run ./internal/mutants -generated -n 60 -seed 1 -files leaderlease/core/
//
// It exits with 1 if a mutant of a table survives, does not compile, or no longer
// applies. Generated mutants that survive are listed and do not change the exit status:
// about one in six changes nothing, and only a reader can tell.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"
)

// options say which mutants to run and what on.
type options struct {
	only, table     *regexp.Regexp
	directed, sim   bool
	trace, traceAll bool
	seeds           int
	list            bool
}

// tables are all mutants, by what they break.
var tables = []struct {
	name    string
	mutants []Mutant
}{
	{"planted", planted},
	{"rules", rules},
	{"layers", layers},
	{"proofs", proofs},
	{"wal", wal},
	{"detector", slices.Concat(suspicions, adaptive)},
}

func main() {
	var o options
	only := flag.String("only", "", "run mutants with a rule or name that matches this regexp")
	table := flag.String("table", "", "run mutants of the tables that match this regexp: "+tableNames())
	flag.BoolVar(&o.directed, "directed", true, "run the directed test that is named for a mutant")
	flag.BoolVar(&o.sim, "sim", true, "let the simulator find the bugs it is expected to find")
	flag.BoolVar(&o.trace, "trace", true, "judge the traces of a simulation with the bug, without it")
	flag.BoolVar(&o.traceAll, "trace-all", false, "do so for each mutant that was asked for")
	flag.IntVar(&o.seeds, "seeds", 2000, "give up on a simulation after this many seeds")
	flag.BoolVar(&o.list, "list", false, "print the table and run nothing")
	generate := flag.Bool("generated", false, "run generated mutants instead of the tables")
	files := flag.String("files", mutated, "-generated: mutate the files with a path that matches this regexp")
	n := flag.Int("n", 60, "-generated: run as many mutants that compile")
	seed := flag.Uint64("seed", 1, "-generated: which ones")
	flag.Parse()

	if *generate {
		os.Exit(mainGenerated(*files, generated{n: *n, seed: *seed, list: o.list}))
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -only:", err)
		os.Exit(2)
	}
	if o.table, err = regexp.Compile(*table); err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -table:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	bad := runAll(ctx, o)
	stop()
	if bad > 0 {
		os.Exit(1)
	}
}

// mutated are the files in which a mistake can make a read stale, hide one from the
// judge of traces, lose what was acknowledged, or end a TTL lease.
const mutated = `^(leaderlease/(core/|leasetrace/|clock/(internal/vdso/)?)?\w+\.go|raftwal/\w+\.go|kvnode/(read\w*|apply|internal/ttl/\w+|internal/store/\w+)\.go)$`

// mainGenerated returns the exit code.
func mainGenerated(files string, g generated) int {
	var err error
	if g.files, err = regexp.Compile(files); err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -files:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runGenerated(ctx, g); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 1
	}
	return 0
}

// picks reports whether m is to be run.
func (o options) picks(m Mutant) bool {
	if !o.only.MatchString(m.Rule) && !o.only.MatchString(m.Name) {
		return false
	}
	return o.directed && m.Test != "" || o.sim && m.Sim || o.trace && (m.Trace || o.traceAll)
}

// mutants returns those of the tables that were asked for.
func (o options) mutants() (all []Mutant) {
	for _, t := range tables {
		if o.table.MatchString(t.name) {
			all = append(all, t.mutants...)
		}
	}
	return all
}

func tableNames() string {
	var names []string
	for _, t := range tables {
		names = append(names, t.name)
	}
	return strings.Join(names, ", ")
}

// runAll returns how many mutants were not caught.
func runAll(ctx context.Context, o options) (bad int) {
	run := 0
	start := time.Now()
	all := slices.DeleteFunc(o.mutants(), func(m Mutant) bool { return !o.picks(m) })
	shared, err := o.batches(ctx, all)
	defer shared.remove()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 1
	}
	for _, m := range all {
		run++
		if o.list {
			fmt.Printf("%-8s %-60s %s\n", m.Rule, m.Name, describe(m))
			continue
		}
		begun := time.Now()
		v := runMutant(ctx, m, shared.of[m.Pkg], o)
		fmt.Printf("%-8s %-60s %s (%.1fs)\n", m.Rule, m.Name, v, time.Since(begun).Seconds())
		if !v.caught() {
			bad++
		}
		if ctx.Err() != nil {
			bad++
			break
		}
	}
	fmt.Printf("\n%d mutants, %d not caught, %s\n", run, bad, time.Since(start).Round(time.Second))
	return bad
}

func describe(m Mutant) string {
	how := []string{}
	if m.Test != "" {
		how = append(how, m.Pkg+" "+m.Test)
	}
	if m.Trace {
		how = append(how, "judge of traces")
	}
	if m.Sim {
		how = append(how, "simulator")
	}
	return strings.Join(how, ", ")
}

// Mutant is one planted bug: the source with Old replaced by New, in File and
// wherever More says. Old occurs exactly once in its file.
type Mutant struct {
	// Rule names what is broken: a rule of docs/design.md, a section of it, an
	// assumption, or a part such as storage and detector.
	Rule string
	// Name says in words what the bug is.
	Name           string
	File, Old, New string
	More           []Edit
	// Pkg and Test are the directed test that catches it: a package path like
	// ./leaderlease and a -run pattern. Empty if only the simulator can.
	Pkg, Test string
	// Sim says that the simulator is expected to catch it, too.
	Sim bool
	// Trace says that the trace of a simulation with the bug is refused by a judge
	// without it.
	Trace bool
}

// Edit is a further replacement that a Mutant needs.
type Edit struct{ File, Old, New string }

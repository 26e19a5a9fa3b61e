// Command mutants plants the bugs of docs/reliability.md one by one and sees
// each caught. The source tree is not touched: a mutant is compiled through
// go build's -overlay.
//
//	go run ./internal/mutants                 all of them
//	go run ./internal/mutants -sim=false      those that a directed test catches
//	go run ./internal/mutants -only 'L6|half' those whose rule or name match
//
// It exits with 1 if a mutant survives, does not compile, or no longer applies.
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

func main() {
	only := flag.String("only", "", "run mutants whose rule or name match this regexp")
	sim := flag.Bool("sim", true, "let the simulator find the bugs it is expected to find")
	seeds := flag.Int("seeds", 2000, "give up on a simulation after this many seeds")
	list := flag.Bool("list", false, "print the table and run nothing")
	flag.Parse()

	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -only:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	bad := runAll(ctx, match, *sim, *seeds, *list)
	stop()
	if bad > 0 {
		os.Exit(1)
	}
}

// runAll returns how many mutants were not caught.
func runAll(ctx context.Context, match *regexp.Regexp, sim bool, seeds int, list bool) (bad int) {
	table := slices.DeleteFunc(slices.Concat(planted, rules, wal), func(m Mutant) bool {
		return !match.MatchString(m.Rule) && !match.MatchString(m.Name) || !sim && m.Test == "" && m.Equivalent == ""
	})
	start := time.Now()
	for _, m := range table {
		if list || m.Equivalent != "" {
			fmt.Printf("%-8s %-60s %s\n", m.Rule, m.Name, describe(m))
			continue
		}
		v := runMutant(ctx, m, sim, seeds)
		fmt.Printf("%-8s %-60s %s\n", m.Rule, m.Name, v)
		if !v.caught() {
			bad++
		}
		if ctx.Err() != nil {
			bad++
			break
		}
	}
	fmt.Printf("\n%d mutants, %d not caught, %s\n", len(table), bad, time.Since(start).Round(time.Second))
	return bad
}

func describe(m Mutant) string {
	if m.Equivalent != "" {
		return "equivalent: " + m.Equivalent
	}
	how := []string{}
	if m.Test != "" {
		how = append(how, m.Pkg+" "+m.Test)
	}
	if m.Sim {
		how = append(how, "simulator")
	}
	return strings.Join(how, ", ")
}

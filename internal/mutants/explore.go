package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// corePkg is where the explorer's first level searches; docs/explorer.md says what
// the levels are.
const corePkg = "./leaderlease/core"

// exploredTables are those whose bugs break a rule of the lease.
var exploredTables = regexp.MustCompile("^(planted|rules)$")

// exploreAll lets the explorer search for each mutant of the rules' tables and
// writes which it finds, as a table, to path.
func exploreAll(ctx context.Context, o options, path string) (err error) {
	f, err := os.Create(path) //nolint:gosec // the path is the caller's
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	o.table = exploredTables
	_, err = io.WriteString(f, "# What the explorer finds\n\nMade by `make explore-mutants`; "+
		"[explorer.md](explorer.md) says what the columns mean. A depth is the number of steps of the shortest way there.\n\n"+
		"| rule | planted bug | found |\n|---|---|---|\n")
	tally := map[string]int{}
	for _, m := range o.mutants() {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !o.only.MatchString(m.Rule) && !o.only.MatchString(m.Name) {
			continue
		}
		found, class := exploreOne(ctx, m)
		tally[class]++
		fmt.Printf("%-8s %-60s %s\n", m.Rule, m.Name, found)
		_, err = fmt.Fprintf(f, "| %s | %s | %s |\n", m.Rule, m.Name, found)
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "\n%d found by search, %d of level 2, %d not found, %d equivalent.\n",
			tally[classCaught], tally[classLevel2], tally[classNot], tally[classEquivalent])
	}
	return err
}

const (
	classCaught     = "found"
	classLevel2     = "level 2"
	classNot        = "not found"
	classEquivalent = "equivalent"
)

// exploreOne says what the search finds with m planted.
func exploreOne(ctx context.Context, m Mutant) (found, class string) {
	switch {
	case m.Equivalent != "":
		return classEquivalent, classEquivalent
	case !m.inCore():
		return classLevel2, classLevel2
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err.Error(), classNot
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := plant(m, dir)
	if err != nil {
		return err.Error(), classNot
	}
	binary, err := compile(ctx, corePkg, overlay, dir)
	if err != nil {
		return err.Error(), classNot
	}
	// Most are found by a short search, and some by a longer one, which is not made
	// where nothing is expected.
	why, expected := unfound[m.Name]
	for _, times := range []string{"1", "5"} {
		if times != "1" && expected {
			break
		}
		out, err := run(ctx, corePkg, binary, "-test.run", "^TestExplore$", "-test.timeout", "0", "-explore.times", times)
		if found, class = searched(out, err); class == classCaught {
			return found, class
		}
	}
	if expected {
		return why, classNot
	}
	return found, class
}

// inCore reports whether all of m is in package core.
func (m Mutant) inCore() bool {
	for _, e := range append([]Edit{{File: m.File}}, m.More...) {
		if !strings.HasPrefix(e.File, "leaderlease/core/") {
			return false
		}
	}
	return true
}

var (
	counterexample = regexp.MustCompile(`COUNTEREXAMPLE search=(\S+) depth=(\d+) states=(\d+)`)
	missedGoal     = regexp.MustCompile(`GOAL (.*)`)
)

// searched reads what TestExplore printed.
func searched(out string, err error) (found, class string) {
	if c := counterexample.FindStringSubmatch(out); c != nil {
		return fmt.Sprintf("depth %s in %s, %s states", c[2], c[1], c[3]), classCaught
	}
	if g := missedGoal.FindStringSubmatch(out); g != nil {
		return "a goal is not reached: " + g[1], classCaught
	}
	if err != nil {
		return "fails: " + lastLine(out), classNot
	}
	return "no", classNot
}

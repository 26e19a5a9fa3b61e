package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// level is one of the explorer's: docs/explorer.md says what they are.
type level struct {
	number    int
	pkg, test string
	// runs are the flags of a first search, and of one where it has found nothing.
	runs [][]string
}

var levels = []level{
	// What breaks the claim comes first, and then what breaks a rule by itself.
	{1, "./leaderlease/core", "^TestExplore$", [][]string{{"-explore.rules=false"}, {"-explore.times", "5"}}},
	{2, leasetestPkg, "^TestExplore$", [][]string{{"-explore.rules=false"}, nil}},
	{3, libPkg, "^TestExplore", [][]string{nil}},
}

// exploredTables are the tables of bugs that break a rule of the lease.
var exploredTables = regexp.MustCompile("^(planted|rules)$")

// explorer makes the searches, and keeps what they find.
type explorer struct {
	options
	scripts *scripts
	tally   map[string]int
}

// exploreAll runs the explorer on each mutant of the rules' tables. It writes the results to
// path, one line a mutant, and the scripts that were found to the -kept file.
func exploreAll(ctx context.Context, o options, path string) (err error) {
	dir, err := os.MkdirTemp("", "scripts")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	x := &explorer{options: o, tally: make(map[string]int)}
	x.table = exploredTables
	if x.scripts, err = newScripts(ctx, dir); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# Made by make explore-mutants. Each line: the rule, the planted bug, and the search that finds it. The levels and searches\n" +
		"# are those of docs/explorer.md; a depth is the number of steps of the shortest schedule or script that shows the bug.\n\n")
	if err := x.explore(ctx, &b); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n%d found by search, %d that no schedule shows, %d equivalent, %d not found.\n",
		x.tally[classCaught], x.tally[classSilent], x.tally[classEquivalent], x.tally[classNot])
	if err := x.scripts.write(x.kept); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644) //nolint:gosec // it is kept in the repository
}

// explore writes a line for each mutant.
func (x *explorer) explore(ctx context.Context, w io.Writer) error {
	for _, m := range x.mutants() {
		if !x.only.MatchString(m.Rule) && !x.only.MatchString(m.Name) {
			continue
		}
		found, class := x.one(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		x.tally[class]++
		_, _ = fmt.Fprintf(io.MultiWriter(w, os.Stdout), "%-8s %-66s %s\n", m.Rule, m.Name, found)
	}
	return nil
}

const (
	classCaught     = "found"
	classNot        = "not found"
	classSilent     = "no schedule shows it"
	classEquivalent = "equivalent"
)

// one says what the searches find with m planted: those of level 1 if all of it is in
// package core, and those of level 2 if these find nothing.
func (x *explorer) one(ctx context.Context, m Mutant) (found, class string) {
	if m.Equivalent != "" {
		return classEquivalent, classEquivalent
	}
	if why, ok := silent[m.Name]; ok {
		return fmt.Sprintf("no schedule shows it: %s (%s)", why, m.Test), classSilent
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
	why, expected := unfound[m.Name]
	for _, l := range levels {
		if (l.number == 1 && !m.inCore()) || (x.level != 0 && x.level != l.number) {
			continue
		}
		if found, class = x.search(ctx, l, m, overlay, dir); class == classCaught {
			return fmt.Sprintf("level %d: %s", l.number, found), class
		}
	}
	if expected {
		return "no: " + why, classNot
	}
	return found, class
}

// search makes the searches of a level. Most bugs are found by the first, and some by
// the second, which is not made where nothing is expected.
func (x *explorer) search(ctx context.Context, l level, m Mutant, overlay, dir string) (found, class string) {
	binary, err := compile(ctx, l.pkg, overlay, dir)
	if err != nil {
		return err.Error(), classNot
	}
	args := []string{"-test.run", l.test, "-test.timeout", "0"}
	if l.number == 2 {
		args = append(args, "-explore.script", x.scripts.file())
	}
	var out string
	for i, flags := range l.runs {
		if _, expected := unfound[m.Name]; i > 0 && (expected || class == classCaught) {
			break
		}
		out, err = run(ctx, l.pkg, binary, append(args, flags...)...)
		found, class = searched(out, err)
	}
	if l.number != 2 || !counterexample.MatchString(out) {
		return found, class
	}
	shown, err := x.scripts.keep(ctx, m, binary)
	if err != nil {
		return err.Error(), classNot
	}
	return found + shown, class
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

// unfound gives the reason why no search finds a bug, by the bug's name. A directed test
// or the simulator catches each of them.
var unfound = map[string]string{
	"after a disruption what is saved does not cover earlier processes": "in no search is MaxPromise shorter than that of an earlier process",
	"a change is told for one that is still being applied":              "a second change waits for the first; the script found/late-follower.txt shows it",
}

// silent gives the reason why no schedule shows a bug: no stale view passes, no lease or
// read is missing, and no node breaks a rule. These bugs are not searched for. Their
// directed tests act as a caller, voter or raft that does not exist in a real group.
var silent = map[string]string{
	"a shorter probe shortens the promise":                  "a leader asks for one duration in a term, and when a later leader is elected, a promise to an earlier one protects no lease",
	"the leader believes more than it asked for":            "a voter grants the duration that the probe asked for, which is the leader's own in its term",
	"the leader believes more than was promised":            "a voter promises the duration that the probe asked for, or nothing",
	"an empty configuration commits everything":             "raft has no such configuration while a node leads",
	"requests for votes wait for an older term":             "raft hands out a request with the write of its term or after it, never with an older term",
	"a resignation releases for ever":                       "a leader that has resigned sends no more probes in that term, and a term is led once (V9)",
	"a missed change is the cause of each refusal":          "it changes the text of an error",
	"a hold that has ended says that waiting does not help": "it changes a hint in an error, which no code here uses",
}

// leasetestPkg is where the explorer's second level searches. What it finds is a script.
const leasetestPkg = "./leaderlease/leasetest"

// keptScripts is where the scripts are kept that were found, for TestFoundScripts.
const keptScripts = "leaderlease/leasetest/testdata/found/found.txt"

// scripts are those that were found, with what they print where no bug is planted.
type scripts struct {
	dir string
	// ours is the test binary without a bug.
	ours string
	// names are the bugs of each script, in the order of order.
	names map[string][]string
	order []string
}

func newScripts(ctx context.Context, dir string) (*scripts, error) {
	ours := filepath.Join(dir, "ours")
	if err := os.Mkdir(ours, 0o700); err != nil {
		return nil, err
	}
	binary, err := compile(ctx, leasetestPkg, "", ours)
	return &scripts{dir: dir, ours: binary, names: make(map[string][]string)}, err
}

// file is where a search leaves its script.
func (s *scripts) file() string { return filepath.Join(s.dir, "script.txt") }

// keep takes the script that was found with m planted. It has m's binary fail what it
// prints on ours, or says that it does not.
func (s *scripts) keep(ctx context.Context, m Mutant, binary string) (verdict string, err error) {
	play := []string{"-test.run", "^TestScript$", "-script", s.file()}
	if out, err := run(ctx, leasetestPkg, s.ours, append(play, "-rewrite")...); err != nil {
		return "", fmt.Errorf("play the script without the bug: %w: %s", err, lastLine(out))
	}
	text, err := os.ReadFile(s.file())
	if err != nil {
		return "", err
	}
	if _, err := run(ctx, leasetestPkg, binary, play...); err == nil {
		return ", its script does not show it", nil
	}
	if s.names[string(text)] == nil {
		s.order = append(s.order, string(text))
	}
	if name := m.Rule + ": " + m.Name; !slices.Contains(s.names[string(text)], name) {
		s.names[string(text)] = append(s.names[string(text)], name)
	}
	return "", nil
}

// write writes what was kept.
func (s *scripts) write(path string) error {
	var b strings.Builder
	for _, text := range s.order {
		for _, name := range s.names[text] {
			fmt.Fprintf(&b, "# %s\n", name)
		}
		b.WriteString(text)
		b.WriteByte('\n')
	}
	return os.WriteFile(path, []byte(b.String()), 0o644) //nolint:gosec // it is kept in the repository
}

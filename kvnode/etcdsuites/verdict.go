package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// outcome is the result of one test.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// verdict sorts the tests of a run. A test with subtests is judged by them,
// unless it failed and none of them did.
type verdict struct {
	passed  []string
	skipped []string
	known   map[string][]string // by reason
	failed  []string
	heals   []string // in the list, and passed
	gone    []string // in the list, and not met
}

// judge sorts the outcomes by the list. If whole is set, all tests were run, so
// a listed name without an outcome is wrong.
func judge(outcomes map[string]outcome, list known, whole bool) verdict {
	v := verdict{known: map[string][]string{}}
	for test, got := range outcomes {
		if !judgedByItself(test, got, outcomes) {
			continue
		}
		reason := list.why(test)
		switch {
		case got == skipped:
			v.skipped = append(v.skipped, test)
		case got == passed:
			v.passed = append(v.passed, test)
		case reason != "":
			v.known[reason] = append(v.known[reason], test)
		default:
			v.failed = append(v.failed, test)
		}
	}
	for test, cause := range list {
		switch got, met := outcomes[test]; {
		case met && got != failed && !cause.sometimes:
			v.heals = append(v.heals, test)
		case !met && whole && !(cause.sometimes && outcomes[parent(test)] == failed):
			v.gone = append(v.gone, test)
		}
	}
	for _, tests := range v.known {
		slices.Sort(tests)
	}
	for _, tests := range [][]string{v.passed, v.skipped, v.failed, v.heals, v.gone} {
		slices.Sort(tests)
	}
	return v
}

// judgedByItself reports whether a test has an outcome of its own: it has no subtests, or it failed
// although none of them did.
func judgedByItself(test string, got outcome, outcomes map[string]outcome) bool {
	parts, failures := 0, 0
	for other, part := range outcomes {
		if strings.HasPrefix(other, test+"/") {
			parts++
			if part == failed {
				failures++
			}
		}
	}
	return parts == 0 || got == failed && failures == 0
}

// parent returns the test that test is a part of. If it ran out of time, later parts have no outcome.
func parent(test string) string {
	suite, name, _ := strings.Cut(test, " ")
	top, _, _ := strings.Cut(name, "/")
	return suite + " " + top
}

// ok reports whether the run matches the list.
func (v verdict) ok() bool { return len(v.failed)+len(v.heals)+len(v.gone) == 0 }

// known maps a test, "suite TestName/subtest", to the reason why it fails.
type known map[string]cause

type cause struct {
	reason    string
	sometimes bool // it may pass as well
}

// readKnown reads known.txt: a line in brackets is a reason, and the lines below
// it are the tests that fail for it, always or sometimes. Names are whole: a
// pattern would cover tests that were never examined.
func readKnown(r io.Reader) (known, error) {
	var (
		tests  = known{}
		reason string
		errs   []error
	)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			reason = strings.Trim(line, "[]")
		case reason == "":
			errs = append(errs, fmt.Errorf("line %d: %q has no reason above it", n, line))
		default:
			name, c, ok := readTest(line)
			c.reason = reason
			if _, twice := tests[name]; !ok {
				errs = append(errs, fmt.Errorf("line %d: %q is not a suite and a test", n, line))
			} else if twice {
				errs = append(errs, fmt.Errorf("line %d: %q is there twice", n, name))
			}
			tests[name] = c
		}
	}
	return tests, errors.Join(append(errs, lines.Err())...)
}

func readTest(line string) (name string, c cause, ok bool) {
	words := strings.Fields(line)
	if len(words) == 3 && words[2] == "sometimes" {
		words, c.sometimes = words[:2], true
	}
	return strings.Join(words, " "), c, len(words) == 2
}

// why returns the reason for which a test may fail, its own or that of a parent
// test.
func (k known) why(test string) string {
	for {
		if c, is := k[test]; is {
			return c.reason
		}
		end := strings.LastIndexByte(test, '/')
		if end < 0 {
			return ""
		}
		test = test[:end]
	}
}

// tailLines is the number of output lines that are printed for an unexplained failure.
const tailLines = 30

// report prints a verdict.
type report struct {
	verdict
	suites []string
	output map[string]string
	took   time.Duration
}

func (r report) print(w io.Writer) {
	r.printTable(w)
	for _, reason := range slices.Sorted(maps.Keys(r.known)) {
		printTests(w, "failed, for "+reason, r.known[reason])
	}
	printTests(w, "skipped by themselves", r.skipped)
	printTests(w, "in known.txt, and did not fail: take them out", r.heals)
	printTests(w, "in known.txt, and there is no such test: take them out", r.gone)
	printTests(w, "failed", r.failed)
	for _, test := range r.failed {
		r.printOutput(w, test)
	}
}

func (r report) printTable(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "suite\tpassed\tfailed with the known reason\tfailed\tskipped\tlisted and passed\tlisted and gone\t")
	for _, suite := range r.suites {
		explained := 0
		for _, tests := range r.known {
			explained += of(suite, tests)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", suite,
			of(suite, r.passed), explained, of(suite, r.failed), of(suite, r.skipped), of(suite, r.heals), of(suite, r.gone))
	}
	t.Flush()
	fmt.Fprintf(w, "tests and parts of tests; %v\n", r.took.Round(time.Second))
}

// of counts the tests of a suite.
func of(suite string, tests []string) int {
	n := 0
	for _, test := range tests {
		if strings.HasPrefix(test, suite+" ") {
			n++
		}
	}
	return n
}

func printTests(w io.Writer, heading string, tests []string) {
	if len(tests) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s (%d):\n", heading, len(tests))
	for _, test := range tests {
		fmt.Fprintf(w, "  %s\n", test)
	}
}

// printOutput prints the end of the output of a test's process.
func (r report) printOutput(w io.Writer, test string) {
	suite, name, _ := strings.Cut(test, " ")
	name, _, _ = strings.Cut(name, "/")
	lines := slices.DeleteFunc(strings.Split(r.output[suite+" "+name], "\n"), func(line string) bool {
		return strings.Contains(line, "logger.go:") // of clients and of the framework
	})
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	fmt.Fprintf(w, "\n%s:\n  %s\n", test, strings.Join(lines, "\n  "))
}

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// tailLines is how much is printed of what an unexplained failure said.
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

// printOutput prints the end of what the process of a test said.
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

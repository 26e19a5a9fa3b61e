package main

import (
	"slices"
	"strings"
)

// outcome is what became of one test.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// verdict sorts the tests of a run. A test that has parts is judged by them,
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
		case !met && whole:
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

// ok says whether the run was as the list says.
func (v verdict) ok() bool { return len(v.failed)+len(v.heals)+len(v.gone) == 0 }

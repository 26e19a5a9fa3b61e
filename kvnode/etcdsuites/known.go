package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

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

// why returns the reason for which a test may fail, its own or that of a test
// that it is part of.
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

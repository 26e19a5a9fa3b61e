package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chosen is the variable of the environment that says which mutant of a batch is planted.
const chosen = "PLANTED_MUTANT"

// batch is a test binary with many mutants: a function that they change begins with a
// branch for each, which has the changed body and is taken if that mutant is chosen.
// Most of what a mutant takes is to compile it.
type batch struct {
	binary string
	// numbers choose mutants, by their keys. One without a number is compiled by itself.
	numbers map[string]int
}

// key tells a mutant from all others.
func (m Mutant) key() string { return fmt.Sprint(m.Rule, ": ", m.Name, m.Sim) }

// batched compiles mutants together into one test binary, as many as share a package of tests.
func batched(ctx context.Context, all []Mutant, dir string) (batch, error) {
	b := batch{numbers: make(map[string]int)}
	for i, m := range all {
		b.numbers[m.key()] = i + 1
	}
	for len(b.numbers) > 1 {
		h, err := hedged(all, b.numbers)
		if err != nil {
			return batch{}, err
		}
		overlay, err := h.write(dir)
		if err != nil {
			return batch{}, err
		}
		if overlay, err = narrowed(all, overlay, dir); err != nil {
			return batch{}, err
		}
		if b.binary, err = compile(ctx, all[0].Pkg, overlay, dir, " -e"); err == nil || ctx.Err() != nil {
			return b, errors.Join(ctx.Err(), b.sound(ctx, all))
		}
		if !b.drop(h, err.Error()) {
			return batch{}, nil
		}
	}
	return batch{}, nil
}

// sound runs the tests of all without a mutant: one that fails as it is catches nothing.
func (b batch) sound(ctx context.Context, all []Mutant) error {
	patterns := make(map[string]bool)
	for _, m := range all {
		patterns[m.Test] = true
	}
	out, err := run(ctx, all[0].Pkg, b.binary, "-test.run", strings.Join(slices.Sorted(maps.Keys(patterns)), "|"))
	if err != nil {
		return fmt.Errorf("%s without a bug: %w\n%s", all[0].Pkg, err, out)
	}
	return nil
}

// drop removes from b the mutants that do not compile, and reports whether there are any.
func (b batch) drop(h hedge, errs string) (dropped bool) {
	for _, at := range regexp.MustCompile(`(?m)^(?:\S*/)?(branches_\d+\.go):(\d+):`).FindAllStringSubmatch(errs, -1) {
		line, _ := strconv.Atoi(at[2])
		for _, s := range h.spans[at[1]] {
			if key := s.key; s.first <= line && line <= s.last && b.numbers[key] > 0 {
				delete(b.numbers, key)
				dropped = true
			}
		}
	}
	return dropped
}

// write writes the files of h to dir, and their overlay.
func (h hedge) write(dir string) (overlay string, err error) {
	replaced := make(map[string]string)
	for path, text := range h.texts {
		replaced[path] = filepath.Join(dir, h.names[path])
		err = errors.Join(err, os.WriteFile(replaced[path], []byte(text), 0o600))
	}
	b, jsonErr := json.Marshal(map[string]any{"Replace": replaced})
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(err, jsonErr, os.WriteFile(overlay, b, 0o600))
}

// batches groups mutants by the package of their tests, each in a directory of its own.
type batches struct {
	dir string
	of  map[string]batch
}

func (b batches) remove() { _ = os.RemoveAll(b.dir) } // it is a temporary one

// batches compiles what shares a package's tests, before the first mutant is run.
func (o options) batches(ctx context.Context, all []Mutant) (b batches, err error) {
	if o.list || !o.directed {
		return b, nil
	}
	sharing := make(map[string][]Mutant)
	for _, m := range all {
		if m.Test != "" && m.Equivalent == "" {
			sharing[m.Pkg] = append(sharing[m.Pkg], m)
		}
	}
	b.of = make(map[string]batch)
	if b.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return b, err
	}
	for pkg, all := range sharing {
		dir := filepath.Join(b.dir, fmt.Sprint(len(b.of)))
		err = errors.Join(err, os.Mkdir(dir, 0o700))
		var batchErr error
		b.of[pkg], batchErr = batched(ctx, all, dir)
		err = errors.Join(err, batchErr)
	}
	return b, err
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// verdict is the result of one mutant.
type verdict struct {
	err error // it could not be planted, or does not compile
	// directed, sim and trace say how each kind of test ended; empty if not run.
	directed, sim, trace outcome
}

type outcome struct {
	ran    bool
	caught bool
	detail string
}

func (v verdict) caught() bool {
	ran := false
	for _, o := range v.outcomes() {
		ran = ran || o.ran
		if o.ran && !o.caught {
			return false
		}
	}
	return v.err == nil && ran
}

func (v verdict) outcomes() []outcome { return []outcome{v.directed, v.sim, v.trace} }

func (v verdict) String() string {
	if v.err != nil {
		return "BROKEN " + v.err.Error()
	}
	var parts []string
	for _, o := range v.outcomes() {
		switch {
		case !o.ran:
		case o.caught:
			parts = append(parts, "caught "+o.detail)
		default:
			parts = append(parts, "SURVIVED "+o.detail)
		}
	}
	if len(parts) == 0 {
		return "no test is named for it; run with -sim"
	}
	return strings.Join(parts, "; ")
}

// runMutant plants m and runs the tests that must fail.
func runMutant(ctx context.Context, m Mutant, b batch, o options) (v verdict) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return verdict{err: err}
	}
	defer func() { v.err = errors.Join(v.err, os.RemoveAll(dir)) }()
	overlay, err := plant(m, dir)
	if err != nil {
		return verdict{err: err}
	}
	if m.Test != "" && o.directed {
		v.directed, v.err = directed(ctx, m, b, overlay, dir)
	}
	if v.err == nil && m.Sim && o.sim {
		v.sim, v.err = simulated(ctx, overlay, dir, o.seeds)
	}
	if v.err == nil && (m.Trace || o.traceAll) && o.trace {
		v.trace, v.err = traced(ctx, overlay, dir)
	}
	return v
}

// plant writes the mutated files to dir and returns the overlay that replaces the real
// files with them.
func plant(m Mutant, dir string) (overlay string, err error) {
	replaced := make(map[string]string)
	for i, e := range append([]Edit{{m.File, m.Old, m.New}}, m.More...) {
		path, err := filepath.Abs(e.File)
		if err != nil {
			return "", err
		}
		from := path
		if done, ok := replaced[path]; ok {
			from = done
		}
		source, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(source), e.Old); n != 1 {
			return "", fmt.Errorf("%s: the text to replace occurs %d times, want 1: %q", e.File, n, e.Old)
		}
		to := filepath.Join(dir, fmt.Sprintf("%d_%s", i, filepath.Base(e.File)))
		if err := os.WriteFile(to, []byte(strings.Replace(string(source), e.Old, e.New, 1)), 0o600); err != nil {
			return "", err
		}
		replaced[path] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// compile builds the test binary of pkg, so that a mutant that does not compile
// is not taken for one that was caught. It carries no debug information.
func compile(ctx context.Context, pkg, overlay, dir string, flags ...string) (binary string, err error) {
	binary = filepath.Join(dir, "mutant.test")
	args := []string{"test", "-c", "-vet=off", "-gcflags=./...=-dwarf=false" + strings.Join(flags, ""), "-ldflags=-s -w -buildid=", "-overlay", overlay, "-o", binary}
	out, err := exec.CommandContext(ctx, "go", append(args, pkg)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("does not compile: %w\n%s", err, out)
	}
	return binary, nil
}

// directed runs the test that is named for m, in b if that has it, or else alone.
func directed(ctx context.Context, m Mutant, b batch, overlay, dir string) (outcome, error) {
	n, ok := b.numbers[m.key()]
	if ok {
		return tried(ctx, m, b.binary, fmt.Sprintf("%s=%d", chosen, n))
	}
	narrow, err := narrowed([]Mutant{m}, overlay, dir)
	if err != nil {
		return outcome{}, err
	}
	binary, err := compile(ctx, m.Pkg, narrow, dir)
	if err != nil {
		return outcome{}, err
	}
	return tried(ctx, m, binary)
}

func tried(ctx context.Context, m Mutant, binary string, env ...string) (outcome, error) {
	args := []string{"-test.run", m.Test, "-test.timeout", "2m"}
	out, err := runIn(ctx, env, m.Pkg, binary, args...)
	if strings.Contains(out, "no tests to run") {
		return outcome{}, fmt.Errorf("%s has no test %s", m.Pkg, m.Test)
	}
	o := outcome{ran: true, caught: err != nil, detail: "by " + m.Test}
	if found := violation.FindStringSubmatch(out); found != nil {
		o.detail += fmt.Sprintf(", seed %s, oracle %s", found[1], found[2])
	} else if all := failure.FindAllString(out, -1); all != nil {
		o.detail += fmt.Sprintf(": %.200s", strings.Join(slices.Compact([]string{all[0], all[len(all)-1]}), " ... "))
	}
	return o, ctx.Err()
}

// failure is a line that a failed test prints. The first or the last one usually tells
// whether the test failed because of the bug.
var failure = regexp.MustCompile(`(?m)\b(\w+\.go:\d+: .*|panic: .*)$`)

// violation is the line that the simulator prints for a violation.
var violation = regexp.MustCompile(`VIOLATION seed=(\d+) oracle=(\S+)`)

func simulated(ctx context.Context, overlay, dir string, seeds int) (outcome, error) {
	binary, err := compile(ctx, simPkg, overlay, dir)
	if err != nil {
		return outcome{}, err
	}
	out, err := run(ctx, simPkg, binary, "-test.run", "^TestSimulation$", "-test.timeout", "0",
		fmt.Sprintf("-seeds=%d", seeds), "-stop=1")
	if err == nil {
		return outcome{ran: true, detail: fmt.Sprintf("the simulator, %d seeds", seeds)}, ctx.Err()
	}
	found := violation.FindStringSubmatch(out)
	if found == nil {
		return outcome{ran: true, caught: true, detail: "by the simulator: " + lastLine(out)}, ctx.Err()
	}
	return outcome{ran: true, caught: true, detail: fmt.Sprintf("by the simulator, seed %s, oracle %s", found[1], found[2])}, ctx.Err()
}

// run runs a test binary in the package's directory, as go test does.
func run(ctx context.Context, pkg, binary string, args ...string) (string, error) {
	return runIn(ctx, nil, pkg, binary, args...)
}

func runIn(ctx context.Context, env []string, pkg, binary string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = pkg, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "panic:") {
			return l
		}
	}
	return lines[len(lines)-1]
}

// topLevel matches the first line of a function that go test runs.
var topLevel = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)(?:[^\Wa-z]\w*)?)\(`)

var word = regexp.MustCompile(`\w+`)

// narrowed returns an overlay that turns the tests that no mutant needs into generic functions. These
// are type-checked, but not compiled, which halves the time for a package with long tests.
func narrowed(all []Mutant, overlay, dir string) (string, error) {
	patterns := []string{"^TestMain$"}
	for _, m := range all {
		pattern, _, _ := strings.Cut(m.Test, "/")
		patterns = append(patterns, pattern)
	}
	named, err := regexp.Compile(strings.Join(patterns, "|"))
	if err != nil {
		return "", err
	}
	var o struct{ Replace map[string]string }
	b, err := os.ReadFile(overlay)
	if err := errors.Join(err, json.Unmarshal(b, &o)); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(all[0].Pkg, "*_test.go"))
	texts, times := make(map[string]string), make(map[string]int)
	for _, file := range files {
		path, absErr := filepath.Abs(file)
		source, readErr := os.ReadFile(cmp.Or(o.Replace[path], path))
		err = errors.Join(err, absErr, readErr)
		texts[path] = string(source)
		for _, w := range word.FindAllString(texts[path], -1) {
			times[w]++
		}
	}
	for path, text := range texts {
		text = topLevel.ReplaceAllStringFunc(text, func(begin string) string {
			name := topLevel.FindStringSubmatch(begin)[1]
			if named.MatchString(name) || times[name] > 1 { // others may call it
				return begin
			}
			return "func leftOut" + name + "[_ any]("
		})
		o.Replace[path] = filepath.Join(dir, "narrow_"+filepath.Base(path))
		err = errors.Join(err, os.WriteFile(o.Replace[path], []byte(text), 0o600))
	}
	b, jsonErr := json.Marshal(o)
	overlay = filepath.Join(dir, "narrow.json")
	return overlay, errors.Join(err, jsonErr, os.WriteFile(overlay, b, 0o600))
}

// tracedSeeds is the number of seeds that a mutated simulator runs, each until one of its oracles
// reports a violation.
const tracedSeeds = 30

// traced runs a mutated simulator with a lease trace, and judges the trace in this process, which has
// no mutant.
func traced(ctx context.Context, overlay, dir string) (outcome, error) {
	binary, err := compile(ctx, simPkg, overlay, dir)
	if err != nil {
		return outcome{}, err
	}
	out, err := run(ctx, simPkg, binary, "-test.run", "^TestSimulation$", "-test.timeout", "0",
		fmt.Sprintf("-seeds=%d", tracedSeeds), fmt.Sprintf("-stop=%d", tracedSeeds), "-skip-guard", "-traced=0", "-trace="+dir)
	files, globErr := filepath.Glob(filepath.Join(dir, "*.trace"))
	if globErr != nil || len(files) == 0 {
		return outcome{}, errors.Join(globErr, err, fmt.Errorf("no trace was written: %s", lastLine(out)))
	}
	events := 0
	for _, file := range files {
		all, err := leasetrace.ReadFiles(file)
		if err != nil {
			return outcome{}, err
		}
		v := leasetrace.Judge(all)
		if v.Refused != nil {
			return outcome{ran: true, caught: true, detail: fmt.Sprintf("by the judge of its traces: %v", v.Refused)}, ctx.Err()
		}
		events += v.Events()
	}
	return outcome{ran: true, detail: fmt.Sprintf("the judge of its traces, %d seeds, %d events", len(files), events)}, ctx.Err()
}

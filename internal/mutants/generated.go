package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// generated says which generated mutants to run.
type generated struct {
	files *regexp.Regexp
	n     int
	seed  uint64
	list  bool
}

// fate is what became of one generated mutant.
type fate string

const (
	caught   fate = "caught"
	hung     fate = "hung"     // caught by its deadline alone
	survived fate = "SURVIVED" // nothing noticed
	unbuilt  fate = "does not compile"
	same     fate = "same binary"
	argued   fate = "equivalent" // it is in the kept list
)

// counts reports whether a mutant of this fate is one of the sample.
func (f fate) counts() bool { return f == caught || f == hung || f == survived }

// original is what the tests of a package are without a mutant.
type original struct {
	sum      [sha256.Size]byte
	deadline time.Duration
	rapid    bool
	err      error
}

// runGenerated returns how many mutants survived, or could not be judged.
func runGenerated(ctx context.Context, g generated) (bad int, err error) {
	all, err := sites(g.files)
	if err != nil {
		return 0, err
	}
	if g.list {
		for _, s := range all {
			fmt.Println(s)
		}
		return 0, nil
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("-files %s: nothing to mutate", g.files)
	}
	start := time.Now()
	score := make(map[fate]int)
	packages := make(map[string]original)
	var left []site
	for _, s := range sample(all, g.seed) {
		if score[caught]+score[hung]+score[survived] == g.n {
			break
		}
		begun := time.Now()
		f, err := judge(ctx, s, packages)
		if err != nil {
			return 0, err
		}
		score[f]++
		if f.counts() {
			fmt.Printf("%-9s %s (%.1fs)\n", f, s, time.Since(begun).Seconds())
		}
		if f == survived {
			left = append(left, s)
		}
	}
	fmt.Printf("\n%d places, seed %d: %d caught, %d of them hung, %d survived; besides %d equivalent, %d did not compile, %d made no difference; %s\n",
		len(all), g.seed, score[caught]+score[hung], score[hung], score[survived], score[argued], score[unbuilt], score[same], time.Since(start).Round(time.Second))
	for _, s := range left {
		fmt.Println(s)
	}
	return len(left), nil
}

func (s site) String() string {
	return fmt.Sprintf("%s:%d: %s: %s  ->  %s", s.file, s.line, s.operator, s.before, s.after)
}

// judge compiles the tests of the package that s is in and runs them.
func judge(ctx context.Context, s site, packages map[string]original) (fate, error) {
	if _, ok := equivalent(s); ok {
		return argued, nil
	}
	pkg := "./" + filepath.ToSlash(filepath.Dir(s.file))
	if _, ok := packages[pkg]; !ok {
		packages[pkg] = measure(ctx, pkg)
	}
	o := packages[pkg]
	if o.err != nil {
		return "", fmt.Errorf("%s without a mutant: %w", pkg, o.err)
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is a temporary one
	overlay, err := overlaid(s, dir)
	if err != nil {
		return "", err
	}
	binary, err := compile(ctx, pkg, overlay, dir)
	if err != nil {
		return unbuilt, ctx.Err()
	}
	sum, err := summed(binary)
	if err != nil || sum == o.sum {
		return same, err
	}
	out, err := short(ctx, pkg, binary, o)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return survived, nil
	case strings.Contains(out, "panic: test timed out after"):
		return hung, nil
	}
	return caught, nil
}

// measure runs the tests of pkg as they are. A mutant's may take five times as
// long and twenty seconds, then they hang.
func measure(ctx context.Context, pkg string) (o original) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return original{err: err}
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is a temporary one
	overlay := filepath.Join(dir, "overlay.json")
	if o.err = os.WriteFile(overlay, []byte("{}"), 0o600); o.err != nil {
		return o
	}
	binary, err := compile(ctx, pkg, overlay, dir)
	if err != nil {
		return original{err: err}
	}
	if o.sum, o.err = summed(binary); o.err != nil {
		return o
	}
	o.rapid, o.deadline = usesRapid(pkg), 10*time.Minute
	start := time.Now()
	if out, err := short(ctx, pkg, binary, o); err != nil {
		o.err = fmt.Errorf("%w\n%s", err, out)
	}
	o.deadline = 5*time.Since(start) + 20*time.Second
	return o
}

// short runs the short tests of a binary up to the first that fails. What rapid
// finds is neither minimised nor kept.
func short(ctx context.Context, pkg, binary string, o original) (string, error) {
	args := []string{"-test.short", "-test.failfast", "-test.timeout", o.deadline.String()}
	if o.rapid {
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=0s")
	}
	return run(ctx, pkg, binary, args...)
}

func usesRapid(pkg string) bool {
	tests, _ := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	for _, t := range tests {
		if b, err := os.ReadFile(t); err == nil && strings.Contains(string(b), `"pgregory.net/rapid"`) {
			return true
		}
	}
	return false
}

func summed(binary string) (sum [sha256.Size]byte, err error) {
	b, err := os.ReadFile(binary)
	return sha256.Sum256(b), err
}

// overlaid writes the mutated file and the overlay that puts it in place.
func overlaid(s site, dir string) (overlay string, err error) {
	path, err := filepath.Abs(s.file)
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(dir, filepath.Base(s.file))
	if err := os.WriteFile(mutated, []byte(string(source[:s.from])+s.text+string(source[s.to:])), 0o600); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

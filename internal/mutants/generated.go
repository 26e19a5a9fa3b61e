package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// fate is the result of one generated mutant.
type fate string

const (
	caught   fate = "caught"
	hung     fate = "hung"     // only the deadline of the tests caught it
	survived fate = "SURVIVED" // all tests passed
	unbuilt  fate = "does not compile"
	same     fate = "same binary"
)

// counts reports whether a mutant of this fate is one of the sample.
func (f fate) counts() bool { return f == caught || f == hung || f == survived }

// original is the test binary of a package without a mutant.
type original struct {
	sum      [sha256.Size]byte
	deadline time.Duration
	rapid    bool
	err      error
}

// runGenerated runs a sample of the mutants and lists those that survive.
func runGenerated(ctx context.Context, g generated) error {
	all, err := sites(g.files)
	if err != nil {
		return err
	}
	if g.list {
		for _, s := range all {
			fmt.Println(s)
		}
		return nil
	}
	if len(all) == 0 {
		return fmt.Errorf("-files %s: nothing to mutate", g.files)
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
			return err
		}
		score[f]++
		if f.counts() {
			fmt.Printf("%-9s %s (%.1fs)\n", f, s, time.Since(begun).Seconds())
		}
		if f == survived {
			left = append(left, s)
		}
	}
	fmt.Printf("\n%d places, seed %d: %d caught, %d of them hung, %d survived; besides %d did not compile, %d made no difference; %s\n",
		len(all), g.seed, score[caught]+score[hung], score[hung], score[survived], score[unbuilt], score[same], time.Since(start).Round(time.Second))
	if len(left) > 0 {
		fmt.Println("Each of these needs a test, unless it changes nothing:")
	}
	for _, s := range left {
		fmt.Println(s)
	}
	return nil
}

func (s site) String() string {
	return fmt.Sprintf("%s:%d: %s: %s  ->  %s", s.file, s.line, s.operator, s.before, s.after)
}

// judge compiles the tests of the package that s is in and runs them.
func judge(ctx context.Context, s site, packages map[string]original) (fate, error) {
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

// measure runs the tests of pkg without a mutant. With a mutant they may take five times as
// long plus twenty seconds. After that they count as hung.
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

// short runs the short tests of a binary up to the first failure. Counterexamples of rapid
// are neither minimised nor kept.
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

// site is one generated mutant: the bytes from..to of file replaced by text.
type site struct {
	file     string // slash-separated, from the root of the repository
	line     int
	operator string
	from, to int
	text     string
	// before and after are the lines it touches, each run of blanks one space.
	before, after string
}

// sites returns every mutant of the Go files below the current directory with a
// matching path, in the order of their files and lines.
func sites(files *regexp.Regexp) (all []site, err error) {
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || !files.MatchString(path) {
			return err
		}
		dir, name := filepath.Split(path)
		if match, err := build.Default.MatchFile(dir, name); err != nil || !match {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		of, err := mutate(path, source)
		all = append(all, of...)
		return err
	})
	return all, err
}

// mutate applies each operator at each place of one file where it fits.
func mutate(path string, source []byte) ([]site, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	base := set.File(file.Pos())
	w := writer{source: source, offset: base.Offset}
	var found []site
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil || onlyReports(n) {
			return false
		}
		for _, o := range operators {
			for _, c := range o.apply(n, w) {
				s := site{file: path, line: base.Line(c.from), operator: o.name, from: base.Offset(c.from), to: base.Offset(c.to), text: c.text}
				s.before, s.after = w.lines(s)
				found = append(found, s)
			}
		}
		return true
	})
	slices.SortStableFunc(found, func(a, b site) int { return a.from - b.from })
	return found, nil
}

// onlyReports reports whether n only makes a message: a log line, an error or a comment.
func onlyReports(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.Comment:
		return true
	case *ast.CallExpr:
		return reporter.MatchString(spelled(n.Fun))
	}
	return false
}

var reporter = regexp.MustCompile(`(?i)(^|\.)(panic|errorf|sprintf|log|logger|slog)(\.\w+)?$`)

// spelled is the dotted name of a function or field, "" if it has none.
func spelled(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return spelled(e.X) + "." + e.Sel.Name
	}
	return ""
}

// sample returns the mutants in an order that depends only on the seed.
func sample(all []site, seed uint64) []site {
	all = slices.Clone(all)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// writer turns parts of a syntax tree back into text.
type writer struct {
	source []byte
	offset func(token.Pos) int
}

func (w writer) text(from, to token.Pos) string {
	return string(w.source[w.offset(from):w.offset(to)])
}

func (w writer) of(n ast.Node) string { return w.text(n.Pos(), n.End()) }

// lines returns the lines that s touches as they are and as they become.
func (w writer) lines(s site) (before, after string) {
	src := string(w.source)
	from := strings.LastIndexByte(src[:s.from], '\n') + 1
	to := len(src)
	if i := strings.IndexByte(src[s.to:], '\n'); i >= 0 {
		to = s.to + i
	}
	return blanks(src[from:to]), blanks(src[from:s.from] + s.text + src[s.to:to])
}

func blanks(s string) string { return strings.Join(strings.Fields(s), " ") }

package main

import (
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
)

// site is one generated mutant: the bytes from..to of file replaced by text.
type site struct {
	file     string // slash-separated, from the root of the repository
	line     int
	operator string
	from, to int
	text     string
	// before and after are the lines it touches, each run of blanks one space.
	before, after string
	// above is the line above them.
	above string
}

// sites returns every mutant of the Go files below the current directory whose
// path matches, in the order of their files and lines.
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

// mutate applies each operator wherever it fits one file.
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
		if n == nil || onlyTalks(n) {
			return false
		}
		for _, o := range operators {
			for _, c := range o.apply(n, w) {
				s := site{file: path, line: base.Line(c.from), operator: o.name, from: base.Offset(c.from), to: base.Offset(c.to), text: c.text}
				s.above, s.before, s.after = w.lines(s)
				found = append(found, s)
			}
		}
		return true
	})
	slices.SortStableFunc(found, func(a, b site) int { return a.from - b.from })
	return found, nil
}

// onlyTalks reports whether n is about what is said and not about what is done.
func onlyTalks(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.Comment:
		return true
	case *ast.CallExpr:
		return talker.MatchString(spelled(n.Fun))
	}
	return false
}

var talker = regexp.MustCompile(`(?i)(^|\.)(panic|errorf|sprintf|log|logger|slog)(\.\w+)?$`)

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

// sample puts the mutants into an order that the seed alone decides.
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

// lines returns the line above those that s touches, and these as they are and as they
// become.
func (w writer) lines(s site) (above, before, after string) {
	from := strings.LastIndexByte(string(w.source[:s.from]), '\n') + 1
	to := len(w.source)
	if i := strings.IndexByte(string(w.source[s.to:]), '\n'); i >= 0 {
		to = s.to + i
	}
	src := string(w.source)
	above = strings.TrimSuffix(src[:from], "\n")
	above = above[strings.LastIndexByte(above, '\n')+1:]
	return blanks(above), blanks(src[from:to]), blanks(src[from:s.from] + s.text + src[s.to:to])
}

func blanks(s string) string { return strings.Join(strings.Fields(s), " ") }

package lint

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sizesPath holds a line for each figure and each rule that existing text breaks: its name, the ceiling,
// and the goal.
const sizesPath = "internal/lint/testdata/sizes.txt"

type size struct {
	name    string
	ceiling int
	goal    string
}

// figure is a measured size of the repository. Nested modules and helpers of tests count, testdata does not.
type figure struct {
	name string
	of   func(t *testing.T) int
}

var figures = []figure{
	{"Go lines outside tests, not generated", func(t *testing.T) int { return lines(t, (*file).isCode) }},
	{"Go lines of tests", func(t *testing.T) int { return lines(t, (*file).isTest) }},
	{"files in git", func(t *testing.T) int { return len(git(t, "ls-files")) }}, // 0 in an archive,
	{"packages", func(t *testing.T) int { return len(packages(t)) }},
	{"packages importable from outside", func(t *testing.T) int { return len(importable(t)) }},
	{"packages below 100 lines", func(t *testing.T) int { return len(smallPackages(t)) }},
	{"kvnode's root: lines", func(t *testing.T) int {
		return lines(t, func(f *file) bool { return f.isCode() && f.packageDir() == "kvnode" })
	}},
	{"kvnode's root: files", func(t *testing.T) int {
		return count(t, func(f *file) bool { return f.isCode() && f.packageDir() == "kvnode" })
	}},
	{"kvnode: imports upwards", upwards},
	{"what an embedder reads, lines", func(t *testing.T) int {
		read := []string{"leaderlease", "leaderlease/core", "leaderlease/clock", "leaderlease/fence", "leaderlease/detector", "leaderlease/metrics"}
		return lines(t, func(f *file) bool { return f.isCode() && slices.Contains(read, f.packageDir()) })
	}},
	{"exported names of leaderlease", func(t *testing.T) int { return exported(checked(t, "leaderlease")) }},
	{"words of Markdown", func(t *testing.T) int {
		n := 0
		for _, f := range tree(t) {
			if !f.isGo() {
				n += len(strings.Fields(f.text))
			}
		}
		return n
	}},
	{"kvnode.Node: methods in its method set", func(t *testing.T) int { return methods(checked(t, "kvnode"), "Node") }},
	{"kvnode.Node: fields reachable without a step", func(t *testing.T) int { return fields(checked(t, "kvnode"), "Node") }},
}

// lower is for make sizes LOWER=1: each ceiling comes down to the present number, of lines and words to the next
// 500 above it, so that not each new test has to raise it.
var lower = flag.Bool("lower", false, "lower the ceilings to the present numbers")

func TestSizes(t *testing.T) {
	sizes, lowered := readSizes(t), read(t, sizesPath)
	var table strings.Builder
	row := func(name string, now int) {
		ceiling := now
		if now > 10_000 {
			ceiling = (now + 499) / 500 * 500
		}
		if *lower && ceiling < sizes[name].ceiling {
			of := regexp.MustCompile(`(?m)^(` + regexp.QuoteMeta(name) + ` *\| *)\d+`)
			lowered = of.ReplaceAllString(lowered, "${1}"+strconv.Itoa(ceiling))
		}
		fmt.Fprintf(&table, "%-46s %9d %9d %9s\n", name, now, sizes[name].ceiling, sizes[name].goal)
	}
	fmt.Fprintf(&table, "\n%-46s %9s %9s %9s\n", "", "now", "ceiling", "goal")
	for _, f := range figures {
		now := f.of(t)
		row(f.name, now)
		if limit := sizes[f.name].ceiling; now > limit {
			t.Errorf("%s: %d, at most %d allowed: make it smaller, or raise the ceiling in %s and give the reason in the commit", f.name, now, limit, sizesPath)
		}
	}
	for _, r := range rules {
		if _, ok := sizes[r.name]; ok {
			row(r.name, len(r.inTree(t)))
		}
	}
	if testing.Verbose() {
		fmt.Print(table.String())
	}
	if *lower {
		if err := os.WriteFile(filepath.Join(root, sizesPath), []byte(lowered), 0o600); err != nil {
			t.Error(err)
		}
	}
}

func readSizes(t *testing.T) map[string]size {
	t.Helper()
	all := make(map[string]size)
	for line := range strings.Lines(read(t, sizesPath)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(cells) != 3 {
			t.Fatalf("%s: %q is not of the form name|ceiling|goal", sizesPath, line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		n, err := strconv.Atoi(cells[1])
		if err != nil {
			t.Fatalf("%s: %v", sizesPath, err)
		}
		all[cells[0]] = size{cells[0], n, cells[2]}
	}
	return all
}

// Each line of the sizes belongs to a figure or to a rule.
func TestSizesAreOfSomething(t *testing.T) {
	known := make(map[string]bool)
	for _, f := range figures {
		known[f.name] = true
	}
	for _, r := range rules {
		known[r.name] = true
	}
	for _, name := range otherCeilings {
		known[name] = true
	}
	for name := range readSizes(t) {
		if !known[name] {
			t.Errorf("%s: %q is neither a figure nor a rule", sizesPath, name)
		}
	}
}

func (f *file) isCode() bool { return f.written() && !f.isTest() }

func count(t *testing.T, of func(*file) bool) (n int) {
	for _, f := range tree(t) {
		if of(f) {
			n++
		}
	}
	return n
}

func lines(t *testing.T, of func(*file) bool) (n int) {
	for _, f := range tree(t) {
		if of(f) {
			n += f.lines()
		}
	}
	return n
}

// packages returns the files of each package by its directory.
func packages(t *testing.T) map[string][]*file {
	all := make(map[string][]*file)
	for _, f := range tree(t) {
		if f.isGo() {
			all[f.packageDir()] = append(all[f.packageDir()], f)
		}
	}
	return all
}

// importable returns the packages that another module can import: no programs, nothing in internal
// directories, no packages of tests alone.
func importable(t *testing.T) (all []string) {
	for dir, files := range packages(t) {
		if !slices.Contains(strings.Split(dir, "/"), "internal") && slices.ContainsFunc(files, func(f *file) bool {
			return !f.isTest() && f.ast.Name.Name != "main"
		}) {
			all = append(all, dir)
		}
	}
	return all
}

// smallPackages returns the packages with fewer than 100 lines outside tests, generated code included.
func smallPackages(t *testing.T) (all []string) {
	for dir, files := range packages(t) {
		n := 0
		for _, f := range files {
			if !f.isTest() {
				n += f.lines()
			}
		}
		if n < 100 {
			all = append(all, dir)
		}
	}
	slices.Sort(all)
	t.Logf("packages below 100 lines: %s", strings.Join(all, " "))
	return all
}

// upwards counts the import statements, those of tests included, by which a package in kvnode's tree
// depends on a package that lies above it in the tree, such as kvnode/server/internal/etcdapi on kvnode.
func upwards(t *testing.T) (n int) {
	for _, f := range tree(t) {
		if !f.isGo() || !within(f.name, "kvnode") {
			continue
		}
		for _, to := range f.imports() {
			own, ok := strings.CutPrefix(to, modulePath+"/")
			if ok && within(own, "kvnode") && own != f.packageDir() && within(f.packageDir(), own) {
				n++
			}
		}
	}
	return n
}

func (f *file) imports() (all []string) {
	for _, spec := range f.ast.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			all = append(all, to)
		}
	}
	return all
}

// checked type-checks the code of a package without its imports: embedded types of other packages add
// nothing to method sets.
func checked(t *testing.T, dir string) *types.Package {
	var files []*ast.File
	for _, f := range packages(t)[dir] {
		if f.isCode() {
			files = append(files, f.ast)
		}
	}
	return check(files)
}

func check(files []*ast.File) *types.Package {
	conf := types.Config{Error: func(error) {}, Importer: noImports{}, IgnoreFuncBodies: true}
	pkg, _ := conf.Check("p", positions, files, nil) // the errors are about the imports
	return pkg
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// exported counts a package's exported constants, variables, functions and types, and their methods.
func exported(pkg *types.Package) (n int) {
	for _, name := range pkg.Scope().Names() {
		if !token.IsExported(name) {
			continue
		}
		n++
		if named, ok := pkg.Scope().Lookup(name).Type().(*types.Named); ok && named.Obj().Name() == name {
			for m := range named.Methods() {
				n += len(when(m.Exported(), ""))
			}
		}
	}
	return n
}

// methods returns the size of the method set of a pointer to a type.
func methods(pkg *types.Package, name string) int {
	return types.NewMethodSet(types.NewPointer(pkg.Scope().Lookup(name).Type())).Len()
}

// fields counts the fields that can be selected in one step on a value of a struct type, promoted ones included.
func fields(pkg *types.Package, name string) (n int) {
	of := pkg.Scope().Lookup(name).Type()
	names := make(map[string]bool)
	fieldNames(of, names)
	for name := range names {
		found, _, _ := types.LookupFieldOrMethod(of, true, pkg, name) // nil if it is ambiguous
		if _, ok := found.(*types.Var); ok {
			n++
		}
	}
	return n
}

func fieldNames(of types.Type, into map[string]bool) {
	if p, ok := of.(*types.Pointer); ok {
		of = p.Elem()
	}
	s, ok := of.Underlying().(*types.Struct)
	for i := 0; ok && i < s.NumFields(); i++ {
		into[s.Field(i).Name()] = true
		if s.Field(i).Embedded() {
			fieldNames(s.Field(i).Type(), into)
		}
	}
}

// Control: what the figures count in a small package.
func TestFiguresCount(t *testing.T) {
	f, err := newFile("a.go", `package p
const A, b = 1, 2
func F() {}
type u struct{ deep, shadowed int }
func (u) N() {}
type T struct{ *u; shadowed, plain int }
func (*T) M() {}
func (T) m() {}`)
	if err != nil {
		t.Fatal(err)
	}
	pkg := check([]*ast.File{f.ast})
	if e, m, n := exported(pkg), methods(pkg, "T"), fields(pkg, "T"); e != 4 || m != 3 || n != 4 {
		t.Errorf("%d exported names, %d methods, %d fields; want A, F, T and M; M, N and m; u, deep, shadowed and plain", e, m, n)
	}
}

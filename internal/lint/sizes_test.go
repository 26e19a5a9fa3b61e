package lint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
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

// figure is a measured size of the repository. The comment of each line below says what is counted, where
// the name does not.
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
	{"exported names of leaderlease", exportedNames},
	{"words of Markdown", func(t *testing.T) int {
		n := 0
		for _, f := range tree(t) {
			if !f.isGo() {
				n += len(strings.Fields(f.text))
			}
		}
		return n
	}},
	{"kvnode.Node: methods in its method set", func(t *testing.T) int { m, _ := reachable(t, "kvnode", "Node"); return m }},
	{"kvnode.Node: fields reachable without a step", func(t *testing.T) int { _, f := reachable(t, "kvnode", "Node"); return f }},
}

func TestSizes(t *testing.T) {
	sizes := readSizes(t)
	var table strings.Builder
	row := func(name string, now int) {
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
// depends on a package that lies above it in the tree, such as kvnode/etcdapi on kvnode.
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

// reachable counts the methods in the method set of a pointer to a struct, and the names of the fields
// that can be selected on it in one step, promoted ones included. Embedded types of other packages add
// nothing: imports are not resolved.
func reachable(t *testing.T, dir, name string) (methods, fields int) {
	var files []*ast.File
	for _, f := range tree(t) {
		if f.isCode() && f.packageDir() == dir {
			files = append(files, f.ast)
		}
	}
	conf := types.Config{Error: func(error) {}, Importer: noImports{}, IgnoreFuncBodies: true}
	pkg, _ := conf.Check(modulePath+"/"+dir, positions, files, nil) // the error is that imports are missing
	object := pkg.Scope().Lookup(name)
	if object == nil {
		t.Fatalf("%s has no type %s", dir, name)
	}
	names := make(map[string]bool)
	fieldNames(object.Type(), names)
	for name := range names {
		if found, _, _ := types.LookupFieldOrMethod(object.Type(), true, pkg, name); found != nil {
			if _, ok := found.(*types.Var); ok {
				fields++
			}
		}
	}
	return types.NewMethodSet(types.NewPointer(object.Type())).Len(), fields
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

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// exportedNames counts the constants, variables, functions, types and methods of exported types of the
// library's package, as go doc -all lists them.
func exportedNames(t *testing.T) (n int) {
	for _, f := range tree(t) {
		if f.isCode() && f.packageDir() == "leaderlease" {
			n += exported(f.ast)
		}
	}
	return n
}

func exported(f *ast.File) (n int) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					n += len(when(spec.Name.IsExported(), ""))
				case *ast.ValueSpec:
					n += len(slices.DeleteFunc(slices.Clone(spec.Names), func(id *ast.Ident) bool { return !id.IsExported() }))
				}
			}
		}
	}
	return n
}

func receiver(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// Control: what each of the figures counts, on a small package.
func TestFiguresCount(t *testing.T) {
	f, err := newFile("a.go", "package p\nconst A, b = 1, 2\ntype T struct{}\nfunc F() {}\nfunc (*T) M() {}\nfunc (u) N() {}\n")
	if err != nil {
		t.Fatal(err)
	}
	if n := exported(f.ast); n != 4 {
		t.Errorf("%d exported names, want A, T, F and T.M", n)
	}
	pkg := types.NewPackage("p", "p")
	field := func(name string, of types.Type, embedded bool) *types.Var {
		return types.NewField(0, pkg, name, of, embedded)
	}
	inner := types.NewNamed(types.NewTypeName(0, pkg, "inner", nil), types.NewStruct([]*types.Var{field("deep", types.Typ[types.Int], false)}, nil), nil)
	names := make(map[string]bool)
	fieldNames(types.NewPointer(types.NewStruct([]*types.Var{field("inner", inner, true), field("plain", inner, false)}, nil)), names)
	if len(names) != 3 || !names["deep"] {
		t.Errorf("the fields are %v, want inner, plain and the promoted deep", names)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chosen is the environment variable with the number of the mutant that a batch runs.
const chosen = "PLANTED_MUTANT"

// batch is a test binary with many mutants. Each function that mutants change begins with
// one branch per mutant, which contains the changed body and runs if that mutant is chosen.
// Compilation takes most of a mutant's time, so one binary serves all mutants of a package.
type batch struct {
	binary string
	// numbers are the mutants' numbers by their keys. A mutant without a number is compiled alone.
	numbers map[string]int
}

// key identifies a mutant.
func (m Mutant) key() string { return fmt.Sprint(m.Rule, ": ", m.Name, m.Sim) }

// batched compiles the mutants of one test package into one test binary.
func batched(ctx context.Context, all []Mutant, dir string) (batch, error) {
	b := batch{numbers: make(map[string]int)}
	for i, m := range all {
		b.numbers[m.key()] = i + 1
	}
	for len(b.numbers) > 1 {
		h, err := branchedSource(all, b.numbers)
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

// sound runs the tests of all mutants without a mutant. A test that fails then proves nothing.
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

// drop removes from b the mutants with compile errors, and reports whether it removed any.
func (b batch) drop(h branched, errs string) (dropped bool) {
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
func (h branched) write(dir string) (overlay string, err error) {
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

// batches compiles the batch of each test package before the first mutant runs.
func (o options) batches(ctx context.Context, all []Mutant) (b batches, err error) {
	if o.list || !o.directed {
		return b, nil
	}
	sharing := make(map[string][]Mutant)
	for _, m := range all {
		if m.Test != "" {
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

// branched is the source of a batch.
type branched struct {
	texts map[string]string // by the absolute paths of what they replace
	names map[string]string // of the files that have the texts, by the same
	spans map[string][]span // the branches, by these names
}

// span is the place of a mutant's branch in a file.
type span struct {
	key         string
	first, last int // lines
}

// parsed is a source file without a mutant.
type parsed struct {
	text string
	set  *token.FileSet
	tree *ast.File
	// branches are the branches of each function, in the order of the mutants.
	branches map[*ast.FuncDecl][]branch
}

// branch is the body of a function with a mutant in it.
type branch struct {
	number int
	key    string
	body   string
}

// branchedSource makes a branch for each numbered mutant. It removes the number of a mutant
// that changes anything outside the bodies of functions.
func branchedSource(all []Mutant, numbers map[string]int) (branched, error) {
	files := make(map[string]*parsed)
	for _, m := range all {
		n, ok := numbers[m.key()]
		if !ok {
			continue
		}
		bodies := make(map[*ast.FuncDecl]string)
		of := make(map[*ast.FuncDecl]*parsed)
		for _, e := range append([]Edit{{m.File, m.Old, m.New}}, m.More...) {
			if filepath.Ext(e.File) != ".go" {
				delete(numbers, m.key())
				break
			}
			f, err := parsedOnce(files, e.File)
			if err != nil {
				return branched{}, err
			}
			decl := f.enclosing(e.Old)
			if decl == nil {
				delete(numbers, m.key())
				break
			}
			if of[decl] == nil {
				of[decl], bodies[decl] = f, f.body(decl)
			}
			bodies[decl] = strings.Replace(bodies[decl], e.Old, e.New, 1)
		}
		if _, ok := numbers[m.key()]; !ok {
			continue
		}
		for decl, body := range bodies {
			of[decl].branches[decl] = append(of[decl].branches[decl], branch{n, m.key(), body})
		}
	}
	h := branched{make(map[string]string), make(map[string]string), make(map[string][]span)}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		h.add(i, path, files[path])
	}
	return h, nil
}

func parsedOnce(files map[string]*parsed, file string) (*parsed, error) {
	path, err := filepath.Abs(file)
	if err != nil || files[path] != nil {
		return files[path], err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &parsed{text: string(b), set: token.NewFileSet(), branches: make(map[*ast.FuncDecl][]branch)}
	f.tree, err = parser.ParseFile(f.set, path, b, parser.ParseComments|parser.SkipObjectResolution)
	files[path] = f
	return f, err
}

func (f *parsed) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *parsed) body(d *ast.FuncDecl) string {
	return f.text[f.offset(d.Body.Lbrace)+1 : f.offset(d.Body.Rbrace)]
}

// enclosing returns the only function that contains old in its body, or nil.
func (f *parsed) enclosing(old string) *ast.FuncDecl {
	at := strings.Index(f.text, old)
	if at < 0 || strings.Count(f.text, old) > 1 {
		return nil
	}
	for _, d := range f.tree.Decls {
		d, ok := d.(*ast.FuncDecl)
		if ok && d.Body != nil && d.Name.Name != "init" && f.offset(d.Body.Lbrace) < at && at+len(old) <= f.offset(d.Body.Rbrace) {
			return d
		}
	}
	return nil
}

// add makes the text of one file with branches, and of the file in its package that reads
// the number of the chosen mutant.
func (h branched) add(i int, path string, f *parsed) {
	var text strings.Builder
	done := 0
	name := fmt.Sprintf("branches_%d.go", i)
	for _, d := range f.tree.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || len(f.branches[d]) == 0 {
			continue
		}
		begin := f.offset(d.Body.Lbrace) + 1
		text.WriteString(f.text[done:begin])
		done = begin
		for _, b := range f.branches[d] {
			first := 1 + strings.Count(text.String(), "\n")
			// A closure, so that labels and named results are the body's own.
			if r := d.Type.Results; r == nil {
				fmt.Fprintf(&text, " if plantedMutant == %d { func() {%s\n}(); return };", b.number, b.body)
			} else {
				fmt.Fprintf(&text, " if plantedMutant == %d { return func() %s {%s\n}() };", b.number, f.text[f.offset(r.Pos()):f.offset(r.End())], b.body)
			}
			h.spans[name] = append(h.spans[name], span{b.key, first, 1 + strings.Count(text.String(), "\n")})
		}
	}
	h.names[path], h.texts[path] = name, text.String()+f.text[done:]
	reader := filepath.Join(filepath.Dir(path), "planted_mutant.go")
	h.names[reader] = fmt.Sprintf("chosen_%d.go", i)
	h.texts[reader] = fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar plantedMutant, _ = strconv.Atoi(os.Getenv(%q))\n", f.tree.Name.Name, chosen)
}

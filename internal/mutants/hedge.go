package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hedge is the source of a batch.
type hedge struct {
	texts map[string]string // by the absolute paths of what they replace
	names map[string]string // of the files that have the texts, by the same
	spans map[string][]span // the branches, by these names
}

// span is where the branch of a mutant is.
type span struct {
	key         string
	first, last int // lines
}

// parsed is a source file without a mutant.
type parsed struct {
	text string
	set  *token.FileSet
	tree *ast.File
	// branches are by the function that they begin, as they come.
	branches map[*ast.FuncDecl][]branch
}

// branch is the body of a function as a mutant has it.
type branch struct {
	number int
	key    string
	body   string
}

// hedged makes branches of the mutants that have numbers. It takes the number of one that
// changes more than the bodies of functions, such as a page's script.
func hedged(all []Mutant, numbers map[string]int) (hedge, error) {
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
				return hedge{}, err
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
	h := hedge{make(map[string]string), make(map[string]string), make(map[string][]span)}
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

// add makes the text of one file, and of the one in its package that reads which
// mutant is chosen.
func (h hedge) add(i int, path string, f *parsed) {
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

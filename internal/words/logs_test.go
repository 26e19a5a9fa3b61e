package words

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// Who speaks stands in the attribute component, which handlers can filter by, and
// not at the beginning of the message. The linter (sloglint) sees to the keys.
func TestLogLinesHaveNoPrefix(t *testing.T) {
	lines := 0
	for _, path := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f := parse(t, path)
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if message, ok := logged(n); ok {
				lines++
				if prefixed.MatchString(message) {
					t.Errorf("%s: the line %q begins with a prefix: give its logger a component", f.at(n), message)
				}
			}
			return true
		})
	}
	if lines < 80 {
		t.Fatalf("%d log lines found, want all", lines)
	}
}

// TestPrefixesAreFound is the control of TestLogLinesHaveNoPrefix.
func TestPrefixesAreFound(t *testing.T) {
	for line, want := range map[string]bool{
		`log.Info("kvnode: started")`:                        true,
		`l.cfg.Logger.Error("leaderlease: " + what, "n", 1)`: true,
		`n.log.Warn("TTL: a word")`:                          true,
		`n.log.Warn("a member: it is gone")`:                 false,
		`log.Info("started", "by", "kvnode: x")`:             false,
		`http.Error(w, "kvnode: refused", 403)`:              false,
	} {
		expr, err := parser.ParseExpr(line)
		if err != nil {
			t.Fatal(err)
		}
		message, ok := logged(expr)
		if got := ok && prefixed.MatchString(message); got != want {
			t.Errorf("%s is found: %v, want %v", line, got, want)
		}
	}
}

var prefixed = regexp.MustCompile(`^\w+: `)

// logged returns the constant beginning of the message of a call of a slog method.
func logged(n ast.Node) (message string, ok bool) {
	call, isCall := n.(*ast.CallExpr)
	if !isCall || len(call.Args) == 0 {
		return "", false
	}
	method, isMethod := call.Fun.(*ast.SelectorExpr)
	if !isMethod || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) {
		return "", false
	}
	first := call.Args[0]
	for sum, isSum := first.(*ast.BinaryExpr); isSum; sum, isSum = first.(*ast.BinaryExpr) {
		first = sum.X
	}
	lit, isLit := first.(*ast.BasicLit)
	if !isLit {
		return "", false
	}
	message, err := strconv.Unquote(lit.Value)
	return message, err == nil
}

type file struct {
	ast *ast.File
	set *token.FileSet
}

func (f *file) at(n ast.Node) string {
	p := f.set.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

func parse(t *testing.T, path string) *file {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return &file{f, set}
}

// sources returns the project's files with an ending. What is generated, and what is
// a copy of another project's, has others' words.
func sources(t *testing.T, ending string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		switch {
		case e.IsDir() && (name == "testdata" || name == "contrib" || path != root && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case strings.HasSuffix(name, ending) && !strings.Contains(name, ".pb."):
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

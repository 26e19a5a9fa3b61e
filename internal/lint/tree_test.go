package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	root       = "../.."
	modulePath = "github.com/leaderlease/go"
)

// positions is the set of all files that are parsed.
var positions = token.NewFileSet()

// file is a Go or Markdown file of the repository.
type file struct {
	name string // from the root, with slashes
	text string
	// The rest is for Go files.
	ast       *ast.File
	generated bool
}

func (f *file) isGo() bool   { return strings.HasSuffix(f.name, ".go") }
func (f *file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }
func (f *file) lines() int   { return strings.Count(f.text, "\n") }

// written reports whether the project's engineers write the file's code.
func (f *file) written() bool { return f.isGo() && !f.generated }

func (f *file) at(line int) string     { return fmt.Sprintf("%s:%d", f.name, line) }
func (f *file) lineOf(n ast.Node) int  { return positions.Position(n.Pos()).Line }
func (f *file) lineAt(p token.Pos) int { return positions.Position(p).Line }

func newFile(name, text string) (*file, error) {
	f := &file{name: name, text: strings.ReplaceAll(text, "\r\n", "\n")}
	if !f.isGo() {
		return f, nil
	}
	var err error
	f.ast, err = parser.ParseFile(positions, name, f.text, parser.ParseComments|parser.SkipObjectResolution)
	f.generated = err == nil && ast.IsGenerated(f.ast)
	return f, err
}

var readTree = sync.OnceValues(func() (all []*file, err error) {
	err = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		name, ending := d.Name(), filepath.Ext(at)
		switch {
		case err != nil:
			return err
		case d.IsDir() && at != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "bin", "dist", "out"}, name)):
			return filepath.SkipDir
		case d.IsDir() || ending != ".go" && ending != ".md":
			return nil
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		f, err := newFile(filepath.ToSlash(rel), string(text))
		all = append(all, f)
		return err
	})
	return all, err
})

// tree returns the repository's Go and Markdown files, outside testdata.
func tree(t *testing.T) []*file {
	t.Helper()
	all, err := readTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Fatalf("%d files read, want the repository's", len(all))
	}
	return all
}

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// packageDir is the directory of the package that a file belongs to.
func (f *file) packageDir() string { return path.Dir(f.name) }

// within reports whether a path is one of roots, or below one.
func within(name string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return name == root || strings.HasPrefix(name, root+"/") })
}

// git returns the lines that a git command prints; none where the repository has no history, such as in
// an archive.
func git(t *testing.T, args ...string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		return nil
	}
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

var otherCeilings = []string{commitSubjects, internalAbove}

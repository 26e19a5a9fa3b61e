package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// pureImports are the packages that pure source may import, with the names it
// may use of each; nil allows them all.
var pureImports = map[string][]string{
	"cmp":     nil,
	"errors":  nil,
	"math":    nil,
	"slices":  nil,
	"strconv": nil,
	"fmt": {
		"Append", "Appendf", "Appendln", "Errorf", "Sprint", "Sprintf", "Sprintln",
		"Formatter", "GoStringer", "State", "Stringer",
	},
	"time": {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},

	"go.etcd.io/raft/v3/quorum": nil,
	"go.etcd.io/raft/v3/raftpb": nil,
}

// pureWithin is the prefix of what a pure package may import besides: its own
// subpackages, which are held to the same rules.
const pureWithin = modulePath + "/leaderlease/core/"

// impurities returns what keeps one file of source from being pure, one
// sentence each, or an error if it does not parse. src is as for
// [parser.ParseFile].
func impurities(name string, src any) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	c := checker{fset: fset, names: make(map[string]string)}
	for _, spec := range file.Imports {
		c.importSpec(spec)
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, "//go:linkname") {
				c.report(comment, "go:linkname reaches around the import list")
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		c.node(n)
		return true
	})
	return c.found, nil
}

type checker struct {
	fset  *token.FileSet
	names map[string]string // import path by the name it has in the file
	found []string
}

func (c *checker) report(n ast.Node, format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf("%v: %s", c.fset.Position(n.Pos()), fmt.Sprintf(format, args...)))
}

func (c *checker) importSpec(spec *ast.ImportSpec) {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		c.report(spec, "import path %s: %v", spec.Path.Value, err)
		return
	}
	if _, ok := pureImports[path]; !ok && !strings.HasPrefix(path, pureWithin) {
		c.report(spec, "import of %q", path)
		return
	}
	name := path[strings.LastIndexByte(path, '/')+1:]
	if spec.Name != nil {
		name = spec.Name.Name
	}
	if name == "." || name == "_" {
		// A dot import would hide which names are used.
		c.report(spec, "import of %q as %s", path, name)
		return
	}
	c.names[name] = path
}

func (c *checker) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n, "go statement")
	case *ast.SelectStmt:
		c.report(n, "select statement")
	case *ast.SendStmt:
		c.report(n, "channel send")
	case *ast.ChanType:
		c.report(n, "channel type")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.report(n, "channel receive")
		}
	case *ast.CallExpr:
		if f, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
			c.report(n, "%s writes to standard error", f.Name)
		}
	case *ast.SelectorExpr:
		c.selector(n)
	}
}

// selector takes a variable that shadows an import for the import: a false
// alarm at worst, and better renamed anyway.
func (c *checker) selector(n *ast.SelectorExpr) {
	x, ok := n.X.(*ast.Ident)
	if !ok {
		return
	}
	path, ok := c.names[x.Name]
	if !ok {
		return
	}
	if allowed := pureImports[path]; allowed != nil && !slices.Contains(allowed, n.Sel.Name) {
		c.report(n, "use of %s.%s", path, n.Sel.Name)
	}
}

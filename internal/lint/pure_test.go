package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
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

	"google.golang.org/protobuf/proto": {"CloneOf"},
}

var linkname = regexp.MustCompile(`^//go:linkname`)

// pureWithin is the prefix of what a pure package may import besides: its own
// subpackages, which are held to the same rules.
const pureWithin = modulePath + "/leaderlease/core/"

// impurities returns what keeps a file from being pure, one sentence each.
func impurities(f *file) []string {
	c := purity{f: f, names: make(map[string]string)}
	for _, spec := range f.ast.Imports {
		c.importSpec(spec)
	}
	c.found = append(c.found, matches(f, true, linkname)...)
	ast.Inspect(f.ast, func(n ast.Node) bool {
		c.node(n)
		return true
	})
	return c.found
}

type purity struct {
	f     *file
	names map[string]string // import path by the name it has in the file
	found []string
}

func (c *purity) report(n ast.Node, format string, args ...any) {
	c.found = append(c.found, c.f.at(c.f.lineOf(n))+": "+fmt.Sprintf(format, args...))
}

func (c *purity) importSpec(spec *ast.ImportSpec) {
	to, err := strconv.Unquote(spec.Path.Value)
	if _, ok := pureImports[to]; err != nil || !ok && !strings.HasPrefix(to, pureWithin) {
		c.report(spec, "import of %q", to)
		return
	}
	name := path.Base(to)
	if spec.Name != nil {
		name = spec.Name.Name
	}
	if name == "." || name == "_" { // a dot import would hide which names are used
		c.report(spec, "import of %q as %s", to, name)
		return
	}
	c.names[name] = to
}

func (c *purity) node(n ast.Node) {
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

// selector takes a variable that shadows an import for the import. The remedy is to rename the variable.
func (c *purity) selector(n *ast.SelectorExpr) {
	x, ok := n.X.(*ast.Ident)
	if !ok {
		return
	}
	from, ok := c.names[x.Name]
	if allowed := pureImports[from]; ok && allowed != nil && !slices.Contains(allowed, n.Sel.Name) {
		c.report(n, "use of %s.%s", from, n.Sel.Name)
	}
}

// leaderlease/core has no clock, goroutine, channel, lock, logger, randomness or IO: its rules are
// tested by calling them, and replayed bit for bit. All files count, whatever their build constraints say.
func TestCoreIsPure(t *testing.T) {
	files := 0
	for _, f := range tree(t) {
		if f.isCode() && within(f.name, "leaderlease/core") {
			files++
			for _, found := range impurities(f) {
				t.Errorf("%s in the core", found)
			}
		}
	}
	if files == 0 {
		t.Error("no file was checked")
	}
}

// Control: each line breaks one rule, which is found once, but for the first, which breaks none.
func TestEachImpurityIsFound(t *testing.T) {
	for src, want := range map[string]string{
		"import \"time\"; type c struct{ Now func() time.Duration }\n// time.Now and go f() in a comment\nfunc end(c c) time.Duration { return -c.Now() + time.Second }": "",
		`import "time"; var _ = time.Now`:                      "use of time.Now",
		`import t "time"; var _ = t.Since`:                     "use of time.Since",
		`import "time"; var _ time.Timer`:                      "use of time.Timer",
		`import . "time"; var _ = Now`:                         `import of "time" as .`,
		`import _ "errors"`:                                    `import of "errors" as _`,
		`import "sync"`:                                        `import of "sync"`,
		`import "os"`:                                          `import of "os"`,
		`import "log/slog"`:                                    `import of "log/slog"`,
		`import "context"`:                                     `import of "context"`,
		`import "math/rand/v2"`:                                `import of "math/rand/v2"`,
		`import "unsafe"`:                                      `import of "unsafe"`,
		`import "github.com/leaderlease/go/leaderlease"`:       `import of "github.com/leaderlease/go/leaderlease"`,
		`import "go.etcd.io/raft/v3"`:                          `import of "go.etcd.io/raft/v3"`,
		`import "github.com/leaderlease/go/leaderlease/corea"`: `import of "github.com/leaderlease/go/leaderlease/corea"`,
		`import "fmt"; var _ = fmt.Println`:                    "use of fmt.Println",
		`func f() { println(1) }`:                              "println writes to standard error",
		"//go:linkname now runtime.nanotime\nfunc now() int64": "//go:linkname now runtime.nanotime",
		`func f() { go f() }`:                                  "go statement",
		`func f(c <-chan int)`:                                 "channel type",
		`func f(c C) { c <- 1 }`:                               "channel send",
		`func f(c C) { <-c }`:                                  "channel receive",
		`func f() { select {} }`:                               "select statement",
	} {
		f, err := newFile("broken.go", "package core\n"+src+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if found := impurities(f); (want == "") != (len(found) == 0) || want != "" && (len(found) != 1 || !strings.HasSuffix(found[0], ": "+want)) {
			t.Errorf("impurities(%s) = %q, want %q", src, found, want)
		}
	}
}

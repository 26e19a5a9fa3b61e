package lint

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layer says what a package, or all packages of a tree, may import. Paths are of this repository if their
// first element has no dot and is not in the standard library; a path stands for what is below it, too.
type layer struct {
	packages  string
	tree      bool     // with the packages below it
	linked    bool     // with all that the imports of this repository import in turn
	only      []string // what may be imported besides the standard library; nil: anything
	forbidden []string // what may not, in any case
	ceiling   string   // the name in testdata/sizes.txt of how many files break it; empty: none
}

const (
	raft     = "go.etcd.io/raft/v3"
	protobuf = "google.golang.org/protobuf"
)

var above = []string{"kvnode", "raftwal", "cmd", "bench", "examples", "contrib"}

// layers is the table: arrows point down, cmd and bench -> kvnode -> raftwal, leaderlease -> core.
var layers = []layer{
	{packages: "leaderlease/core", linked: true, only: []string{"leaderlease/core", raft + "/quorum", raft + "/raftpb", protobuf}, forbidden: []string{"testing"}},
	// An embedder links raft and protobuf, and nothing that this repository needs for kvnode or its tests.
	{
		packages: "leaderlease", linked: true, only: []string{"leaderlease", "internal", raft, protobuf, "golang.org/x/sys"},
		forbidden: append([]string{"testing", "leaderlease/leasetest", "leaderlease/metrics", "leaderlease/fence/boltfence", "leaderlease/clock/benbjohnson"}, above...),
	},
	// The fence runs at the resource, which has no raft.
	{packages: "leaderlease/fence", linked: true, only: []string{"leaderlease/fence"}, forbidden: []string{"testing", "net"}},
	// An embedder shows its leases without gRPC.
	{
		packages: "leaderlease/leasepage", linked: true, only: []string{"leaderlease", raft, protobuf, "golang.org/x/sys"},
		forbidden: []string{"testing", "leaderlease/leasetest", "leaderlease/metrics"},
	},
	// An embedder's tests link no simulator and no checker of histories.
	{packages: "leaderlease/leasetest", linked: true, only: []string{
		"leaderlease", "internal", raft, protobuf, "golang.org/x/sys",
		"github.com/cockroachdb/datadriven", "github.com/pmezard/go-difflib",
	}, forbidden: []string{"leaderlease/leasetest/sim"}},
	{packages: "leaderlease", tree: true, forbidden: above},
	{packages: "raftwal", linked: true, forbidden: []string{"leaderlease"}},
	{packages: "raftwal", tree: true, forbidden: []string{"kvnode", "cmd", "bench"}},
	{packages: "kvnode", tree: true, forbidden: []string{"cmd", "bench"}},
	{packages: "kvnode/internal", tree: true, forbidden: []string{"kvnode"}},
	{packages: "internal", tree: true, forbidden: []string{"kvnode", "cmd"}, ceiling: internalAbove},
}

const internalAbove = "files of internal that import kvnode"

// forbids reports whether the layer may not import a package. A layer may import itself.
func (l layer) forbids(own string) bool {
	return slices.ContainsFunc(l.forbidden, func(root string) bool {
		return within(own, root) && !(within(l.packages, root) && within(own, l.packages))
	})
}

// breaks returns the imports of the layer's packages that it does not allow, one per file and import.
func (l layer) breaks(files map[string][]*file) (found []string) {
	checked := make(map[string]bool)
	var visit func(dir string)
	visit = func(dir string) {
		if checked[dir] {
			return
		}
		checked[dir] = true
		for _, f := range files[dir] {
			if f.isTest() {
				continue
			}
			for _, to := range f.imports() {
				own, isOwn := strings.CutPrefix(to, modulePath+"/")
				standard := !strings.Contains(strings.Split(to, "/")[0], ".")
				if l.forbids(own) || l.only != nil && !standard && !within(own, l.only...) {
					found = append(found, f.name+" imports "+to)
				}
				if isOwn && l.linked {
					visit(own)
				}
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		if dir == l.packages || l.tree && within(dir, l.packages) {
			visit(dir)
		}
	}
	return found
}

func TestLayers(t *testing.T) {
	files, sizes := packages(t), readSizes(t)
	for _, l := range layers {
		if found := l.breaks(files); len(found) > sizes[l.ceiling].ceiling {
			t.Errorf("%s: %d imports are not allowed, at most %d: %s", l.packages, len(found), sizes[l.ceiling].ceiling, strings.Join(found, "\n"))
		}
		if len(files[l.packages]) == 0 && !l.tree {
			t.Errorf("there is no package %s", l.packages)
		}
	}
}

// Control: each layer finds what it forbids and what it does not name, in the package itself or in one
// that it imports.
func TestForbiddenImportsAreFound(t *testing.T) {
	for _, l := range layers {
		dir, bad := l.packages, slices.Clone(l.forbidden)
		if l.only != nil {
			bad = append(bad, "example.com/unknown")
		}
		for _, to := range bad {
			if standard := to == "testing" || to == "net"; !standard && to != "example.com/unknown" {
				to = modulePath + "/" + to
			}
			f, err := newFile(dir+"/a.go", "package p\nimport \"time\"\nimport \""+to+"\"")
			if err != nil {
				t.Fatal(err)
			}
			files := map[string][]*file{dir: {f}}
			if found := l.breaks(files); len(found) != 1 {
				t.Errorf("the layer of %s finds %q, want the import of %s", dir, found, to)
			}
			if l.linked {
				via, err := newFile(dir+"/a.go", "package p\nimport \""+modulePath+"/"+dir+"/sub\"")
				if err != nil {
					t.Fatal(err)
				}
				if found := l.breaks(map[string][]*file{dir: {via}, dir + "/sub": {f}}); len(found) != 1 {
					t.Errorf("the layer of %s finds %q, want the import of %s by a package below", dir, found, to)
				}
			}
		}
	}
}

// go install of a version refuses a module with a replace directive, so the modules of the workspace have none.
func TestModulesHaveNoReplace(t *testing.T) {
	uses := regexp.MustCompile(`(?m)^\t(\.\S*)$`).FindAllStringSubmatch(read(t, "go.work"), -1)
	replaces := regexp.MustCompile(`(?m)^replace\b`)
	for _, use := range uses {
		if name := path.Join(use[1], "go.mod"); replaces.MatchString(read(t, name)) {
			t.Errorf("%s has a replace directive: use go.work", name)
		}
	}
	if len(uses) < 6 || !replaces.MatchString(read(t, "kvnode/e2e/go.mod")) {
		t.Errorf("go.work uses %q, want six modules, and kvnode/e2e, which is no part of it, replaces some", uses)
	}
}

package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// dependency is one package that a package links, as go list prints it.
type dependency struct {
	ImportPath string
	Standard   bool
}

// rule says what a package may link. Paths stand for themselves and for
// everything below them.
type rule struct {
	pkg       string   // relative to the module
	allowed   []string // what is not of the standard library must be here
	forbidden []string // what must not be there in any case
}

const (
	raft     = "go.etcd.io/raft/v3"
	protobuf = "google.golang.org/protobuf"
)

var (
	coreRule = rule{
		pkg:       "leaderlease/core",
		allowed:   []string{modulePath + "/leaderlease/core", raft + "/quorum", raft + "/raftpb", protobuf},
		forbidden: []string{"testing"},
	}
	leaderleaseRule = rule{
		pkg: "leaderlease",
		allowed: []string{
			modulePath + "/leaderlease/core", modulePath + "/leaderlease/clock", modulePath + "/leaderlease/fence",
			modulePath + "/leaderlease/internal", modulePath + "/internal", raft, protobuf, "golang.org/x/sys",
		},
		forbidden: []string{
			"testing", "google.golang.org/grpc", "github.com/prometheus", "go.etcd.io/bbolt", "github.com/benbjohnson",
			modulePath + "/kvnode", modulePath + "/raftwal", modulePath + "/internal/bench", modulePath + "/cmd",
			modulePath + "/leaderlease/leasetest", modulePath + "/leaderlease/metrics",
			modulePath + "/leaderlease/fence/boltfence", modulePath + "/leaderlease/clock/benbjohnson",
		},
	}
	// An embedder's tests get no simulator, and no checker of histories, with their
	// clusters.
	leasetestRule = rule{
		pkg: "leaderlease/leasetest",
		allowed: []string{
			modulePath + "/leaderlease", modulePath + "/internal", raft, protobuf, "golang.org/x/sys",
			"github.com/cockroachdb/datadriven", "github.com/pmezard/go-difflib",
		},
		forbidden: []string{modulePath + "/leaderlease/leasetest/sim", "github.com/anishathalye/porcupine"},
	}
	fenceRule = rule{
		pkg:       "leaderlease/fence",
		forbidden: []string{"testing", "net"},
	}
)

// violations returns what pkg links against the rule, one path each.
func (r rule) violations(deps []dependency) []string {
	var found []string
	for _, d := range deps {
		own := d.ImportPath == modulePath+"/"+r.pkg
		if within(d.ImportPath, r.forbidden) || !d.Standard && !own && !within(d.ImportPath, r.allowed) {
			found = append(found, d.ImportPath)
		}
	}
	return found
}

func within(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}

func TestPackagesLinkWhatTheyMay(t *testing.T) {
	watchSources(t)
	for _, r := range []rule{coreRule, leaderleaseRule, fenceRule, leasetestRule} {
		t.Run(strings.ReplaceAll(r.pkg, "/", "-"), func(t *testing.T) {
			for _, path := range r.violations(dependencies(t, r.pkg)) {
				t.Errorf("%s links %s; to see how: go list -deps -f '{{.ImportPath}} {{.Imports}}' ./%s", r.pkg, path, r.pkg)
			}
		})
	}
}

// Negative control on a real package: boltfence links bbolt, and every rule
// sees it there.
func TestForbiddenLinksAreFound(t *testing.T) {
	watchSources(t)
	deps := dependencies(t, "leaderlease/fence/boltfence")
	for _, r := range []rule{coreRule, leaderleaseRule, fenceRule, leasetestRule} {
		if found := r.violations(deps); !slices.Contains(found, "go.etcd.io/bbolt") {
			t.Errorf("the rule for %s finds %q in boltfence, want bbolt", r.pkg, found)
		}
	}
}

func TestEachForbiddenLinkIsFound(t *testing.T) {
	for _, r := range []rule{coreRule, leaderleaseRule, fenceRule, leasetestRule} {
		good := []dependency{{modulePath + "/" + r.pkg, false}, {"time", true}, {"testingx", true}}
		for _, path := range r.allowed {
			good = append(good, dependency{path, false}, dependency{path + "/sub", false})
		}
		if found := r.violations(good); len(found) > 0 {
			t.Errorf("the rule for %s finds %q, want nothing", r.pkg, found)
		}
		bad := []dependency{{"example.com/unknown", false}, {modulePath + "/kvnode", false}, {modulePath + "/kvnode/store", false}}
		for _, path := range r.forbidden {
			standard := !strings.Contains(path, ".")
			bad = append(bad, dependency{path, standard}, dependency{path + "/sub", standard})
		}
		for _, d := range bad {
			if found := r.violations(append(slices.Clone(good), d)); !slices.Equal(found, []string{d.ImportPath}) {
				t.Errorf("the rule for %s finds %q, want %q", r.pkg, found, d.ImportPath)
			}
		}
	}
}

// dependencies returns pkg and all that it links on this platform, tests left
// out.
func dependencies(t *testing.T, pkg string) []dependency {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard", "./"+pkg)
	cmd.Dir = moduleRoot
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	deps, err := decodeAll(out)
	if err != nil || len(deps) == 0 {
		t.Fatalf("%v: %d packages, %v", cmd, len(deps), err)
	}
	return deps
}

// decodeAll reads the JSON objects that go list prints one after the other.
func decodeAll(out []byte) ([]dependency, error) {
	var deps []dependency
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var d dependency
		switch err := dec.Decode(&d); {
		case errors.Is(err, io.EOF):
			return deps, nil
		case err != nil:
			return nil, fmt.Errorf("package %d: %w", len(deps), err)
		}
		deps = append(deps, d)
	}
}

// watchSources opens every directory of the library, so that the go command
// knows what the result depends on: it sees files that the test opens, but not
// those that go list reads, and would go on printing "ok (cached)".
func watchSources(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"leaderlease", "internal"} {
		err := filepath.WalkDir(filepath.Join(moduleRoot, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
	}
}

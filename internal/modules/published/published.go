// Package published is for tests that see the modules of this repository as a user
// does, who gets them from a proxy.
package published

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaderlease/go/internal/modules"
)

// Modules is a user's machine: our modules come from a proxy, under a version
// that no earlier state of the sources had.
type Modules struct {
	Version string
	All     []modules.Module
	// Env is the environment in which the go command sees them.
	Env []string
}

// Publish packs the modules of the workspace at root. The test's end takes them
// out of the module cache again.
func Publish(t testing.TB, root string) Modules {
	t.Helper()
	all, err := modules.All(root)
	if err != nil {
		t.Fatal(err)
	}
	version, err := modules.Fingerprint(all)
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	if err := modules.Pack(proxy, all, version); err != nil {
		t.Fatal(err)
	}
	m := Modules{Version: version, All: all, Env: os.Environ()}
	usual := m.Go(t, "", "env", "GOMODCACHE", "GOPROXY")
	cache, rest, _ := strings.Cut(strings.TrimSpace(usual), "\n")
	t.Cleanup(func() { m.removeFrom(t, cache) })
	m.Env = append(m.Env, "GOWORK=off", "GOFLAGS=-modcacherw -buildvcs=false",
		"GOSUMDB=off", "GOPROXY=file://"+proxy+","+rest) // what is not ours has its sums in go.sum files here
	return m
}

// removeFrom takes what the test downloaded out of the module cache.
func (m *Modules) removeFrom(t testing.TB, cache string) {
	t.Helper()
	for _, of := range m.All {
		if err := os.RemoveAll(filepath.Join(cache, of.Path+"@"+m.Version)); err != nil {
			t.Error(err)
		}
		files, err := filepath.Glob(filepath.Join(cache, "cache", "download", of.Path, "@v", m.Version+".*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
	}
}

// Go runs the go command in dir and returns what it prints.
func (m *Modules) Go(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return m.Run(t, dir, "go", args...)
}

// Run runs a program in dir and returns what it prints.
func (m *Modules) Run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, m.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

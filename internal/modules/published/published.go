// Package published is for tests that see the modules of this repository as a user
// does, who gets them from a proxy.
package published

import (
	"os/exec"
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
	env, cache, err := modules.Env(t.Context(), proxy)
	if err != nil {
		t.Fatal(err)
	}
	m := Modules{Version: version, All: all, Env: append(env, "GOSUMDB=off")} // what is not ours has its sums in go.sum files here
	t.Cleanup(func() {
		for _, of := range all {
			if err := modules.Forget(cache, of.Path, version); err != nil {
				t.Error(err)
			}
		}
	})
	return m
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

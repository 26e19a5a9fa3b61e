package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// published is a user's machine: our modules come from a proxy, under a version
// that no earlier state of the sources had.
type published struct {
	version string
	modules []Module
	env     []string
}

func publish(t *testing.T) published {
	t.Helper()
	modules, err := Modules("../..")
	if err != nil {
		t.Fatal(err)
	}
	version, err := Fingerprint(modules)
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	if err := Pack(proxy, modules, version); err != nil {
		t.Fatal(err)
	}
	usual := goCommand(t, "", os.Environ(), "env", "GOMODCACHE", "GOPROXY")
	cache, rest, _ := strings.Cut(strings.TrimSpace(usual), "\n")
	t.Cleanup(func() { removeFrom(t, cache, modules, version) })
	return published{version, modules, append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-modcacherw -buildvcs=false", "GONOSUMDB=github.com/leaderlease", "GOPROXY=file://"+proxy+","+rest)}
}

// removeFrom takes what this test downloaded out of the module cache.
func removeFrom(t *testing.T, cache string, modules []Module, version string) {
	t.Helper()
	for _, m := range modules {
		if err := os.RemoveAll(filepath.Join(cache, m.Path+"@"+version)); err != nil {
			t.Error(err)
		}
		files, err := filepath.Glob(filepath.Join(cache, "cache", "download", m.Path, "@v", version+".*"))
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

func goCommand(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// What the README tells a user to type.
func TestCommandsAreInstalled(t *testing.T) {
	p := publish(t)
	bin := t.TempDir()
	env := append(slices.Clone(p.env), "GOBIN="+bin)
	for name, arg := range map[string]string{"kvnode": "--version", "leasebench": "--help"} {
		goCommand(t, bin, env, "install", "github.com/leaderlease/go/cmd/"+name+"@"+p.version)
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, name), arg).CombinedOutput()
		if err != nil || !strings.Contains(string(out), name) {
			t.Errorf("%s %s: %v\n%s", name, arg, err, out)
		}
		if name == "kvnode" && !strings.Contains(string(out), p.version) {
			t.Errorf("%s %s prints\n%s, want %s in it", name, arg, out, p.version)
		}
	}
}

// The README's program, pasted into a new module.
func TestTheReadmesProgramRuns(t *testing.T) {
	p := publish(t)
	dir := t.TempDir()
	text, err := os.ReadFile("../../examples/three/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	goCommand(t, dir, p.env, "mod", "init", "example.com/three")
	goCommand(t, dir, p.env, "get", "github.com/leaderlease/go/leaderlease@"+p.version)
	goCommand(t, dir, p.env, "mod", "tidy")
	if out := goCommand(t, dir, p.env, "run", "."); strings.Count(out, "may read from its own memory") != 5 {
		t.Errorf("the program prints\n%s, want five reads", out)
	}
}

// What go get of the library changes in services that do not know it yet. Each
// testdata file is the go.mod of one.
func TestGetRaisesRaftsModulesAtMost(t *testing.T) {
	p := publish(t)
	tests := []struct {
		name, service string
		want          []string // modules added or raised, beside leaderlease
	}{
		{"a bare raft service", "bare", []string{"golang.org/x/sys"}},
		{"one like etcd's server", "etcd", nil},
		{"one on raft 3.6", "raft36", []string{"go", "go.etcd.io/raft/v3", "golang.org/x/sys", "google.golang.org/protobuf"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := p.raised(t, tc.service, "leaderlease")
			if !slices.Equal(got, tc.want) {
				t.Errorf("go get adds or raises %q, want %q", got, tc.want)
			}
		})
	}
}

// Negative control: what is of the repository's own module raises more.
func TestGetOfKvnodeRaisesMore(t *testing.T) {
	p := publish(t)
	if got := p.raised(t, "bare", "kvnode"); len(got) < 10 {
		t.Errorf("go get of kvnode adds or raises %q, want ten modules and more", got)
	}
}

// raised returns the modules that are new or newer in the service's go.mod after
// go get of one of ours.
func (p published) raised(t *testing.T, service, library string) []string {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{service + ".mod": "go.mod", "service.go.txt": "service.go"} {
		text, err := os.ReadFile(filepath.Join("testdata", from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := versions(t, dir)
	goCommand(t, dir, p.env, "get", "github.com/leaderlease/go/"+library+"@"+p.version)
	after := versions(t, dir)
	maps.DeleteFunc(after, func(m, v string) bool { return before[m] == v || own(p.modules, m) })
	return slices.Sorted(maps.Keys(after))
}

// versions returns what a go.mod asks for, the version of Go among it.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	name := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"go": parsed.Go.Version}
	for _, r := range parsed.Require {
		all[r.Mod.Path] = r.Mod.Version
	}
	return all
}

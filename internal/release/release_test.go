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

	"github.com/leaderlease/go/internal/modules"
	"github.com/leaderlease/go/internal/modules/published"
)

// notUnderTheDetector skips what other programs do, which it does not look into. make test has it
// in simulations.
func notUnderTheDetector(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("go builds, and only a build without the detector shares what it needs")
	}
}

// publish has programs built with the flags of released ones: what both need is built once.
func publish(t *testing.T) published.Modules {
	t.Helper()
	notUnderTheDetector(t)
	p := published.Publish(t, "../..")
	p.Env = append(p.Env, "CGO_ENABLED=0", "GOFLAGS=-modcacherw -buildvcs=false -trimpath")
	return p
}

// What the README tells a user to type.
func TestCommandsAreInstalled(t *testing.T) {
	p := publish(t)
	bin := t.TempDir()
	p.Env = append(p.Env, "GOBIN="+bin)
	for name, arg := range map[string]string{"kvnode": "--version", "leasebench": "--help"} {
		p.Go(t, bin, "install", "github.com/leaderlease/go/cmd/"+name+"@"+p.Version)
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, name), arg).CombinedOutput()
		if err != nil || !strings.Contains(string(out), name) {
			t.Errorf("%s %s: %v\n%s", name, arg, err, out)
		}
		if name == "kvnode" && !strings.Contains(string(out), p.Version) {
			t.Errorf("%s %s prints\n%s, want %s in it", name, arg, out, p.Version)
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
	p.Go(t, dir, "mod", "init", "example.com/three")
	p.Go(t, dir, "get", "github.com/leaderlease/go/leaderlease@"+p.Version)
	p.Go(t, dir, "mod", "tidy")
	fiveReads(t, p.Go(t, dir, "run", "."))
}

// fiveReads checks that the program of the README prints its five lines, and nothing else.
func fiveReads(t *testing.T, out string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for _, line := range lines {
		if len(lines) != 5 || !strings.Contains(line, " may read from its own memory for another ") {
			t.Fatalf("the program prints\n%s\nwant five reads, and no other line", out)
		}
	}
}

// Before a release exists, the README's commands take the library from a checkout.
func TestTheReadmesCommandsRun(t *testing.T) {
	notUnderTheDetector(t)
	env, _, err := modules.Env(t.Context(), t.TempDir()) // nothing of this repository is published
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), "<!-- run:three -->\n```sh\n")
	block, _, found := strings.Cut(after, "\n```\n")
	if !found {
		t.Fatal("README.md has no commands with the marker run:three")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", block)
	cmd.Dir, cmd.Env = "../..", slices.Concat(env, []string{"GOSUMDB=off", "TMPDIR=" + t.TempDir()})
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the commands fail: %v\n%s%s", err, out, stderr.String())
	}
	fiveReads(t, string(out))
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
			got := raised(t, p, tc.service, "leaderlease")
			if !slices.Equal(got, tc.want) {
				t.Errorf("go get adds or raises %q, want %q", got, tc.want)
			}
		})
	}
}

// Negative control: what is of the repository's own module raises more.
func TestGetOfKvnodeRaisesMore(t *testing.T) {
	p := publish(t)
	if got := raised(t, p, "bare", "kvnode"); len(got) < 10 {
		t.Errorf("go get of kvnode adds or raises %q, want ten modules and more", got)
	}
}

// raised returns the modules that are new or newer in the service's go.mod after
// go get of one of ours.
func raised(t *testing.T, p published.Modules, service, library string) []string {
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
	p.Go(t, dir, "get", "github.com/leaderlease/go/"+library+"@"+p.Version)
	after := versions(t, dir)
	maps.DeleteFunc(after, func(m, v string) bool { return before[m] == v || modules.Own(p.All, m) })
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

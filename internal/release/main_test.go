package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const released = "v0.0.1"

// command runs a program in dir without the workspace, as on a user's machine, and returns its
// output.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0", "GOSUMDB=off", "TMPDIR="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, out, &stderr)
	}
	return string(out)
}

// build makes a release for this machine from a clone of the last commit, and returns its files and the
// directory of the clone. It runs this test binary as the program.
func build(t *testing.T, version string) (made map[string][]byte, clone string, err error) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	clone, dir := filepath.Join(t.TempDir(), "clone"), t.TempDir()
	command(t, ".", "git", "clone", "-q", "--depth=1", "file://"+filepath.ToSlash(root), clone)
	command(t, clone, "git", "tag", released)
	// A file that git ignores is not packed.
	if err := os.WriteFile(filepath.Join(clone, "deploy", "container", "kvnode"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(clone)
	err = run([]string{version, dir, runtime.GOOS + "/" + runtime.GOARCH})
	t.Chdir(filepath.Join(root, "internal", "release"))
	if err != nil {
		return nil, clone, err
	}
	made = make(map[string][]byte)
	files, err := os.ReadDir(dir)
	for _, f := range files {
		made[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name()))
	}
	return made, clone, err
}

// A release that is built again elsewhere has the same files. They name no directory of the machine, and
// their sums are right.
func TestReleasesAreReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds both programs twice")
	}
	first, root, err := build(t, released)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := build(t, released)
	if err != nil || !maps.EqualFunc(first, second, bytes.Equal) || len(first) != 5 {
		t.Errorf("two builds have different files (%v), or not five: %q", err, slices.Sorted(maps.Keys(first)))
	}
	for _, p := range programs {
		wantProgram(t, first, p.name, root)
	}
	dir := t.TempDir()
	for name, text := range first {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS == "linux" {
		command(t, dir, "sha256sum", "--check", "--strict", sumsName)
	}
}

// A version that is not the commit's tag, or a changed file, is refused before anything is built.
func TestReleaseChecksTheTagFirst(t *testing.T) {
	t.Setenv("GOROOT", t.TempDir()) // go builds nothing there
	if _, _, err := build(t, "v9.9.9"); err == nil || !strings.Contains(err.Error(), "tag it v9.9.9") {
		t.Errorf("a build of v9.9.9 from a commit that is tagged %s = %v, want it refused", released, err)
	}
	_, clone, err := build(t, released)
	if err == nil || strings.Contains(err.Error(), "the checkout has changes") {
		t.Errorf("a build of %s without Go = %v, want it to fail behind the check", released, err)
	}
	if err := os.WriteFile(filepath.Join(clone, "LICENSE"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(clone)
	if err := run([]string{released, t.TempDir()}); err == nil || !strings.Contains(err.Error(), "the checkout has changes") {
		t.Errorf("a build of a changed checkout = %v, want it refused", err)
	}
}

// wantProgram checks the archive of a program, which was built in root, and its list of modules.
func wantProgram(t *testing.T, made map[string][]byte, program, root string) {
	t.Helper()
	base := strings.Join([]string{program, released, runtime.GOOS, runtime.GOARCH}, "_")
	files := unpacked(t, made[base+".tar.gz"])
	binary := filepath.Join(t.TempDir(), program)
	if err := os.WriteFile(binary, files[program], 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(strings.Fields(command(t, ".", "go", "env", "GOROOT", "GOMODCACHE", "GOCACHE")), root) {
		if bytes.Contains(files[program], []byte(dir+"/")) {
			t.Errorf("%s names %s", program, dir)
		}
	}
	if modules := string(made[base+".modules.txt"]); !strings.Contains(modules, "dep\tgo.etcd.io/raft/v3\tv3.") {
		t.Errorf("%s.modules.txt does not name raft:\n%s", base, modules)
	}
	if program != "kvnode" {
		return
	}
	if out := command(t, ".", binary, "--version"); !strings.Contains(out, "kvnode Version: "+released+"\n") {
		t.Errorf("kvnode --version = %s, want %s", out, released)
	}
	if files["deploy/systemd/kvnode.service"] == nil || files["deploy/container/kvnode"] != nil {
		t.Errorf("the archive has %q, want the committed files of deploy", slices.Sorted(maps.Keys(files)))
	}
}

// unpacked returns the files of an archive by their names.
func unpacked(t *testing.T, text []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for archive := tar.NewReader(z); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func TestArgumentsThatAreNoRelease(t *testing.T) {
	for _, args := range [][]string{nil, {"v1.0.0"}, {"v1.0.0", t.TempDir(), "linux"}} {
		if err := run(args); err == nil {
			t.Errorf("run(%q) = nil, want an error", args)
		}
	}
}

// Archives for Windows are zips. Their files have the time of the commit, in UTC.
func TestZipsHaveOneTime(t *testing.T) {
	text, err := writeZip([]file{{"a.exe", []byte("x"), 0o755}}, time.Date(2026, 1, 2, 2, 4, 6, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	if f := archive.File[0]; f.Name != "a.exe" || f.Mode() != 0o755 || f.Modified.Format(time.RFC3339) != "2026-01-02T02:04:06Z" {
		t.Errorf("the archive has %s with mode %v of %v", f.Name, f.Mode(), f.Modified)
	}
}

// Before a release exists, the README's commands take the library from a checkout.
func TestTheReadmesCommandsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("go builds, and only a build without the detector shares what it needs")
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
	out := command(t, "../..", "sh", "-eu", "-c", block)
	if n := strings.Count(out, " may read from its own memory for another "); n != 5 || strings.Count(out, "\n") != 5 {
		t.Errorf("the program prints\n%s\nwant five reads, and no other line", out)
	}
}

// The library raises at most raft's own modules in services that do not use it yet. Each testdata file is
// the go.mod of one. The import of kvnode, of the repository's own module, raises more: the control.
func TestGetRaisesRaftsModulesAtMost(t *testing.T) {
	for _, tc := range []struct {
		service string
		want    []string // modules added or raised, beside leaderlease
	}{
		{"bare", []string{"golang.org/x/sys"}},
		{"etcd", nil},
		{"raft36", []string{"go", "go.etcd.io/raft/v3", "golang.org/x/sys", "google.golang.org/protobuf"}},
	} {
		if got := raised(t, tc.service, "/leaderlease"); !slices.Equal(got, tc.want) {
			t.Errorf("%s: go get adds or raises %q, want %q", tc.service, got, tc.want)
		}
	}
	if got := raised(t, "bare", ""); len(got) < 10 {
		t.Errorf("the import of kvnode adds or raises %q, want ten modules and more", got)
	}
}

// raised returns the modules that are new or newer in the service's go.mod after go get of one of our
// modules; of the repository's own module, after its package kvnode is imported.
func raised(t *testing.T, service, module string) []string {
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
	const own = "github.com/leaderlease/go"
	for of, at := range map[string]string{"": ".", "/leaderlease": "leaderlease", "/leaderlease/leasetest": "leaderlease/leasetest", "/leaderlease/metrics": "leaderlease/metrics"} {
		at, err := filepath.Abs("../../" + at)
		if err != nil {
			t.Fatal(err)
		}
		command(t, dir, "go", "mod", "edit", "-replace="+own+of+"@v0.1.0="+at)
	}
	command(t, dir, "go", "get", own+module+"@v0.1.0")
	if module == "" {
		if err := os.WriteFile(filepath.Join(dir, "kvnode.go"), []byte("package service\n\nimport _ \""+own+"/kvnode\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		command(t, dir, "go", "mod", "tidy")
	}
	after := versions(t, dir)
	maps.DeleteFunc(after, func(m, v string) bool { return before[m] == v || strings.HasPrefix(m, own) })
	return slices.Sorted(maps.Keys(after))
}

// versions returns what a go.mod requires, the version of Go included.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	text, _, _ = bytes.Cut(text, []byte("\nreplace "))
	for _, m := range regexp.MustCompile(`(?m)^(?:require |\t)?(\S+) (v?\d\S*)`).FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
	}
	return all
}

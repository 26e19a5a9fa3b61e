package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/modules"
)

const released = "v0.0.1"

// tagged is a copy of the last commit that is tagged as a release.
func tagged(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "clone")
	for _, args := range [][]string{{"clone", "-q", "--depth=1", "file://" + filepath.ToSlash(root), dir}, {"-C", dir, "tag", released}} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return dir
}

// made builds for this machine and returns the directory with what came of it.
func made(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	if err := build(t.Context(), root, released, dir, []platform{{runtime.GOOS, runtime.GOARCH}}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Who builds a release again, elsewhere, gets the same files. They name no place of the machine, and
// their sums are right.
func TestReleasesAreReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds both programs twice")
	}
	notUnderTheDetector(t)
	root, elsewhere := tagged(t), tagged(t)
	first, second := made(t, root), made(t, elsewhere)
	sums := string(readFile(t, filepath.Join(first, sumsName)))
	for _, program := range programs {
		base := strings.Join([]string{program.name, released, runtime.GOOS, runtime.GOARCH}, "_")
		for _, ending := range []string{".tar.gz", ".cdx.json"} {
			sum, err := sumOf(filepath.Join(first, base+ending))
			if err != nil || !strings.Contains(sums, sum+"  "+base+ending+"\n") {
				t.Errorf("%s has sum %s (%v), want that in\n%s", base+ending, sum, err, sums)
			}
			if again, err := sumOf(filepath.Join(second, base+ending)); err != nil || again != sum {
				t.Errorf("%s built again has sum %s (%v), want %s", base+ending, again, err, sum)
			}
		}
		files := unpacked(t, filepath.Join(first, base+".tar.gz"))
		binary := filepath.Join(t.TempDir(), program.name)
		if err := os.WriteFile(binary, files[program.name], 0o700); err != nil {
			t.Fatal(err)
		}
		wantNoPlace(t, binary, root)
		wantModules(t, binary, filepath.Join(first, base+".cdx.json"))
		if program.name == "kvnode" {
			out, err := exec.CommandContext(t.Context(), binary, "--version").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "kvnode Version: "+released+"\n") || files["deploy/systemd/kvnode.service"] == nil {
				t.Errorf("kvnode --version = %s (%v), want %s, and the unit in %d files", out, err, released, len(files))
			}
		}
	}
	if err := build(t.Context(), root, "v9.9.9", t.TempDir(), platforms[:1]); err == nil || !strings.Contains(err.Error(), "tag it v9.9.9") {
		t.Errorf("build(v9.9.9) of a commit that is tagged %s = %v, want it refused", released, err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// unpacked returns the files of an archive by their names.
func unpacked(t *testing.T, path string) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(readFile(t, path)))
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

// wantNoPlace expects that a program does not say where it was built.
func wantNoPlace(t *testing.T, binary, root string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := readFile(t, binary)
	for _, place := range append(strings.Fields(string(out)), root) {
		if bytes.Contains(text, []byte(place+"/")) {
			t.Errorf("%s names %s", filepath.Base(binary), place)
		}
	}
}

// wantModules expects that a program's SBOM names all that is linked into it, with versions.
func wantModules(t *testing.T, binary, sbom string) {
	t.Helper()
	var b bom
	if err := json.Unmarshal(readFile(t, sbom), &b); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range info.Deps {
		if !slices.ContainsFunc(b.Components, func(c component) bool {
			return c.Name == dep.Path && (c.Version == dep.Version || dep.Version == "(devel)" && c.Version == released)
		}) {
			t.Errorf("%s lacks %s@%s", filepath.Base(sbom), dep.Path, dep.Version)
		}
	}
	if len(info.Deps) < 20 || len(b.Components) != len(info.Deps)+1 || b.Metadata.Component.Version != released {
		t.Errorf("%s has %d components of version %s, want %d modules, the library of Go, and %s",
			filepath.Base(sbom), len(b.Components), b.Metadata.Component.Version, len(info.Deps), released)
	}
}

// Modules are named as package URLs do; ours have the release's version.
func TestSBOMNamesModules(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/own", Version: "v1.2.3"}, Deps: []*debug.Module{
		{Path: "example.com/own/part", Version: "(devel)"},
		{Path: "example.com/old", Version: "v3.0.0+incompatible", Sum: "h1:x"},
	}}
	own := []modules.Module{{Path: "example.com/own"}, {Path: "example.com/own/part"}}
	b, err := newBOM("tool", info, own, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range b.Components {
		got = append(got, c.PURL)
	}
	want := []string{"pkg:golang/stdlib@1.26.8", "pkg:golang/example.com/own/part@v1.2.3", "pkg:golang/example.com/old@v3.0.0%2Bincompatible"}
	if main := b.Metadata.Component.PURL; !slices.Equal(got, want) || main != "pkg:golang/example.com/own@v1.2.3#cmd/tool" {
		t.Errorf("newBOM() = %q of %s, want %q", got, main, want)
	}
	info.Deps[1].Replace = &debug.Module{Path: "../old"}
	if _, err := newBOM("tool", info, own, "v1.2.3"); err == nil {
		t.Error("newBOM() with a module that is replaced = nil, want an error")
	}
}

func TestPlatformsAreNamed(t *testing.T) {
	if all, err := platformsOf(nil); err != nil || len(all) != 6 {
		t.Errorf("platformsOf() = %v, %v, want six", all, err)
	}
	if one, err := platformsOf([]string{"linux/arm64"}); err != nil || !slices.Equal(one, []platform{{"linux", "arm64"}}) {
		t.Errorf("platformsOf(linux/arm64) = %v, %v", one, err)
	}
	if _, err := platformsOf([]string{"linux"}); err == nil {
		t.Error("platformsOf(linux) = nil, want an error")
	}
}

// Windows gets a zip, whose files are of one time, too.
func TestZipsAreOfOneTime(t *testing.T) {
	dir, at := t.TempDir(), time.Date(2026, 1, 2, 3, 4, 6, 0, time.FixedZone("", 3600))
	program := filepath.Join(dir, "a.exe")
	if err := os.WriteFile(program, []byte("MZ"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := writeArchive(filepath.Join(dir, "a"), true, []file{{"a.exe", program, 0o755}}, at)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if f := archive.File[0]; filepath.Ext(path) != ".zip" || f.Name != "a.exe" || f.Mode() != 0o755 || f.Modified.Format(time.RFC3339) != "2026-01-02T02:04:06Z" {
		t.Errorf("%s has %s with mode %v of %v, want a.exe of %v in UTC", path, f.Name, f.Mode(), f.Modified, at)
	}
}

// What lies in the directory and is not committed, be it ignored, is not packed.
func TestOnlyCommittedFilesArePacked(t *testing.T) {
	root := tagged(t)
	ignored := filepath.Join(root, "deploy", "container", "kvnode")
	before, err := filesOf(t.Context(), root, "deploy")
	if err != nil || len(before) < 5 {
		t.Fatalf("filesOf(deploy) = %v, %v, want what is shipped", before, err)
	}
	if err := os.WriteFile(ignored, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if after, err := filesOf(t.Context(), root, "deploy"); err != nil || !slices.Equal(after, before) {
		t.Errorf("filesOf(deploy) = %v, %v, want %v", after, err, before)
	}
}

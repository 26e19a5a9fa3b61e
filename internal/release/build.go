package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/leaderlease/go/internal/modules"
)

// platform is an operating system and a processor, as Go calls them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// platforms are those that are released.
var platforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// platformsOf reads os/arch words; none means all that are released.
func platformsOf(words []string) ([]platform, error) {
	if len(words) == 0 {
		return platforms, nil
	}
	var all []platform
	for _, word := range words {
		system, arch, ok := strings.Cut(word, "/")
		if !ok {
			return nil, fmt.Errorf("platform %q is not os/arch, such as linux/amd64", word)
		}
		all = append(all, platform{system, arch})
	}
	return all, nil
}

// programs are what is released, with the directories that their archives have besides.
var programs = []struct {
	name string
	dirs []string
}{
	{"kvnode", []string{"deploy"}},
	{"leasebench", nil},
}

// release is one version of the programs.
type release struct {
	root    string // of the repository
	version string
	dir     string // what is made goes there
	own     []modules.Module
}

// build makes archives, one SBOM for each, and their sums in dir. The same commit and Go make the
// same bytes, wherever the repository lies.
func build(ctx context.Context, root, version, dir string, on []platform) error {
	own, err := modules.All(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	r := release{root: root, version: version, dir: dir, own: own}
	var made []string
	for _, p := range on {
		for _, program := range programs {
			names, err := r.pack(ctx, p, program.name, program.dirs)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", program.name, p, err)
			}
			made = append(made, names...)
		}
	}
	return writeSums(dir, made)
}

// pack makes the archive of one program, and returns the names of what it has made.
func (r *release) pack(ctx context.Context, p platform, program string, dirs []string) (made []string, err error) {
	tmp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	name := program
	if p.os == "windows" {
		name += ".exe"
	}
	binary := filepath.Join(tmp, name)
	info, err := r.compile(ctx, p, program, binary)
	if err != nil {
		return nil, err
	}
	at, err := time.Parse(time.RFC3339, setting(info, "vcs.time"))
	if err != nil {
		return nil, fmt.Errorf("time of the commit: %w", err)
	}
	files := []file{{name: name, path: binary, mode: 0o755}, {name: "LICENSE", path: filepath.Join(r.root, "LICENSE"), mode: 0o644}}
	for _, dir := range dirs {
		more, err := filesOf(ctx, r.root, dir)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	base := fmt.Sprintf("%s_%s_%s_%s", program, r.version, p.os, p.arch)
	archive, err := writeArchive(filepath.Join(r.dir, base), p.os == "windows", files, at)
	if err != nil {
		return nil, err
	}
	sbom := base + ".cdx.json"
	return []string{filepath.Base(archive), sbom}, writeSBOM(filepath.Join(r.dir, sbom), program, info, r)
}

// compile builds a program that has no path of this machine in it, and says what went into it. Its
// version is what Go makes of the tag of the commit.
func (r *release) compile(ctx context.Context, p platform, program, to string) (*debug.BuildInfo, error) {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s", "-o", to, "./cmd/"+program)
	cmd.Dir = r.root
	// Not those of whoever builds: each would make other bytes.
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(to)
	if err != nil {
		return nil, err
	}
	if info.Main.Version != r.version {
		return nil, fmt.Errorf("the commit is version %s, want %s: tag it %s, and commit or ignore all that is changed",
			info.Main.Version, r.version, r.version)
	}
	return info, nil
}

// setting returns what a program says of its build, empty if it does not.
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

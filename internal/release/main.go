// Command release writes archives of the programs of one version, with what they were built from and
// checksums, to a directory. The same commit and Go make the same bytes, wherever the checkout lies.
//
//	go run ./internal/release VERSION DIR [OS/ARCH...]
//
// VERSION is the tag of the commit. It runs in the root of the checkout.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// platforms are those of a release.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// programs are those of a release, each with the directory of the repository that its archive has besides.
var programs = []struct{ name, dir string }{{"kvnode", "deploy"}, {"leasebench", ""}}

// sumsName is the file with the checksums, as sha256sum --check reads it.
const sumsName = "SHA256SUMS"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want VERSION DIR [OS/ARCH...], got %q", args)
	}
	version, dir, on := args[0], args[1], args[2:]
	if len(on) == 0 {
		on = platforms
	}
	if err := checkTag(version); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	made := make(map[string][]byte) // by name
	for _, platform := range on {
		for _, p := range programs {
			fmt.Fprintf(os.Stderr, "building %s for %s\n", p.name, platform)
			if err := pack(made, platform, p.name, p.dir, version); err != nil {
				return fmt.Errorf("%s for %s: %w", p.name, platform, err)
			}
		}
	}
	sums, names := new(bytes.Buffer), make([]string, 0, len(made))
	for name := range made {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(sums, "%x  %s\n", sha256.Sum256(made[name]), name)
	}
	made[sumsName] = sums.Bytes()
	for name, text := range made {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// checkTag fails unless the commit has the tag and the checkout has no changes. Otherwise Go would give
// the programs another version, which is visible only after a build.
func checkTag(version string) error {
	tags, err := exec.Command("git", "tag", "--points-at", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git tag: %w", err)
	}
	if !slices.Contains(strings.Fields(string(tags)), version) {
		return fmt.Errorf("the commit has the tags %q, not the version %s: tag it %s", strings.Fields(string(tags)), version, version)
	}
	changes, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	if len(changes) > 0 {
		return fmt.Errorf("the checkout has changes: commit, remove or ignore them:\n%s", changes)
	}
	return nil
}

// pack adds to made the archive of a program, and the list of modules in it.
func pack(made map[string][]byte, platform, program, dir, version string) error {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("the platform is not of the form OS/ARCH, such as linux/amd64")
	}
	name := program
	if system == "windows" {
		name += ".exe"
	}
	binary, info, err := compile(program, system, arch, version)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, setting(info, "vcs.time"))
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	files := []file{{name, binary, 0o755}}
	paths := []string{"LICENSE"}
	if dir != "" {
		// Other files may lie there, such as the binary of a container.
		out, err := exec.Command("git", "ls-files", "-z", "--", dir).Output()
		if err != nil {
			return fmt.Errorf("git ls-files %s: %w", dir, err)
		}
		paths = append(paths, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")...)
	}
	for _, path := range paths {
		text, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			return err
		}
		files = append(files, file{path, text, 0o644})
	}
	base, write, ending := strings.Join([]string{program, version, system, arch}, "_"), writeTar, ".tar.gz"
	if system == "windows" {
		write, ending = writeZip, ".zip"
	}
	made[base+".modules.txt"] = []byte(info.String())
	made[base+ending], err = write(files, at.UTC())
	return err
}

// compile builds a program without paths of this machine in it. Go takes its version from the commit's tag.
func compile(program, system, arch, version string) (binary []byte, info *debug.BuildInfo, err error) {
	tmp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	to := filepath.Join(tmp, program)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s", "-o", to, "./cmd/"+program)
	// Other flags in the caller's environment would make other bytes.
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("%w\n%s", err, out)
	}
	if info, err = buildinfo.ReadFile(to); err != nil {
		return nil, nil, err
	}
	if info.Main.Version != version {
		return nil, nil, fmt.Errorf("go build makes version %s instead of %s: has the commit a newer tag?",
			info.Main.Version, version)
	}
	binary, err = os.ReadFile(to)
	return binary, info, err
}

// setting returns what a program says of its build, empty if it does not.
func setting(info *debug.BuildInfo, key string) string {
	i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
	if i < 0 {
		return ""
	}
	return info.Settings[i].Value
}

// file is one file of an archive. All have the time of the commit and no owner.
type file struct {
	name string
	text []byte
	mode fs.FileMode
}

func writeTar(files []file, at time.Time) ([]byte, error) {
	var to bytes.Buffer
	packed := gzip.NewWriter(&to)
	archive := tar.NewWriter(packed)
	for _, f := range files {
		err := archive.WriteHeader(&tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.text)), ModTime: at, Format: tar.FormatPAX})
		if err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.text); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), packed.Close())
	return to.Bytes(), err
}

func writeZip(files []file, at time.Time) ([]byte, error) {
	var to bytes.Buffer
	archive := zip.NewWriter(&to)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Modified: at, Method: zip.Deflate}
		header.SetMode(f.mode)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return to.Bytes(), err
}

// Package modules packs the modules of this repository as a module proxy serves
// them, so that what a user will get can be tried before it is published.
package modules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// Required is the version that the modules of this repository ask of each other.
const Required = "v0.1.0"

// Module is one module of the repository.
type Module struct {
	Path string
	Dir  string
}

// All returns those that the workspace at root joins.
func All(root string) ([]Module, error) {
	name := filepath.Join(root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return nil, err
	}
	var all []Module
	for _, use := range work.Use {
		dir := filepath.Join(root, use.Path)
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			return nil, err
		}
		all = append(all, Module{Path: modfile.ModulePath(text), Dir: dir})
	}
	return all, nil
}

// Pack writes a file proxy to dir that serves the modules at version, which is
// also what they then ask of each other.
func Pack(dir string, modules []Module, version string) error {
	for _, m := range modules {
		if err := m.pack(filepath.Join(dir, m.Path, "@v"), modules, version); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return nil
}

func (m Module) pack(dir string, all []Module, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files, err := m.files(all, version)
	if err != nil {
		return err
	}
	var zip bytes.Buffer
	if err := modzip.Create(&zip, module.Version{Path: m.Path, Version: version}, files); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Unix(0, 0).UTC()})
	if err != nil {
		return err
	}
	gomod, err := m.goMod(all, version)
	return errors.Join(err,
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(dir, version+".mod"), gomod, 0o644),
		os.WriteFile(filepath.Join(dir, version+".zip"), zip.Bytes(), 0o644))
}

// files returns what the module's archive holds: its own go.mod with the version
// in it, and nothing of the modules in its subdirectories.
func (m Module) files(all []Module, version string) ([]modzip.File, error) {
	checked, err := modzip.CheckDir(m.Dir)
	if err != nil {
		return nil, err
	}
	var files []modzip.File
	for _, at := range checked.Valid {
		name, err := filepath.Rel(m.Dir, at)
		if err != nil {
			return nil, err
		}
		f := file{name: filepath.ToSlash(name), at: at}
		if f.name == "go.mod" {
			if f.text, err = m.goMod(all, version); err != nil {
				return nil, err
			}
		}
		files = append(files, f)
	}
	return files, nil
}

// goMod returns the module's go.mod, asking for version of the other modules.
func (m Module) goMod(all []Module, version string) ([]byte, error) {
	name := filepath.Join(m.Dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	parsed, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	if len(parsed.Replace) > 0 {
		return nil, fmt.Errorf("%s has a replace directive, which go install refuses: use go.work", name)
	}
	for _, r := range parsed.Require {
		if !Own(all, r.Mod.Path) {
			continue
		}
		if r.Mod.Version != Required {
			return nil, fmt.Errorf("%s asks for %s, want %s", name, r.Mod, Required)
		}
		if err := parsed.AddRequire(r.Mod.Path, version); err != nil {
			return nil, err
		}
	}
	return parsed.Format()
}

// Own reports whether a module path is that of one of all.
func Own(all []Module, path string) bool {
	for _, m := range all {
		if m.Path == path {
			return true
		}
	}
	return false
}

// file is one file of a module's archive. text, if there is any, stands for what
// is on disk.
type file struct {
	name, at string
	text     []byte
}

func (f file) Path() string { return f.name }

func (f file) Lstat() (fs.FileInfo, error) {
	info, err := os.Lstat(f.at)
	if err != nil || f.text == nil {
		return info, err
	}
	return sized{info, int64(len(f.text))}, nil
}

type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }

func (f file) Open() (io.ReadCloser, error) {
	if f.text != nil {
		return io.NopCloser(bytes.NewReader(f.text)), nil
	}
	return os.Open(f.at)
}

// Fingerprint is a version that no other state of the sources has: the module
// cache keeps a version for ever.
func Fingerprint(modules []Module) (string, error) {
	sum := sha256.New()
	for _, m := range modules {
		files, err := m.files(modules, Required)
		if err != nil {
			return "", err
		}
		for _, f := range files {
			if _, err := fmt.Fprintf(sum, "%s/%s\n", m.Path, f.Path()); err != nil {
				return "", err
			}
			r, err := f.Open()
			if err != nil {
				return "", err
			}
			if _, err := io.Copy(sum, r); err != nil {
				return "", errors.Join(err, r.Close())
			}
			if err := r.Close(); err != nil {
				return "", err
			}
		}
	}
	return Required + "-try." + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

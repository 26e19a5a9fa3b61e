// Package upstream puts patches on published sources of others, and builds them
// against the modules of this repository as a proxy will serve them.
package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/leaderlease/go/internal/modules"
)

// Library is the module that patches put into what others have made.
const Library = "github.com/leaderlease/go/leaderlease"

// Tree is a directory in which sources are built.
type Tree struct {
	dir     string
	version string // of the library
	env     []string
	cache   string // of modules
}

// New packs the library into a file proxy in dir.
func New(ctx context.Context, dir string) (*Tree, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &Tree{dir: dir}
	if err := os.MkdirAll(t.At("proxy"), 0o755); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "go", "run", "./internal/release", "try", t.At("proxy")).Output()
	if err != nil {
		return nil, fmt.Errorf("pack the library: %w", err)
	}
	t.version = strings.TrimSpace(string(out))
	t.env, t.cache, err = modules.Env(ctx, t.At("proxy"))
	t.env = append(t.env, "GOFLAGS=-mod=mod -modcacherw -buildvcs=false", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	return t, err
}

// Close takes the library out of the module cache again.
func (t *Tree) Close() error { return modules.Forget(t.cache, Library, t.version) }

// At is a path in the tree.
func (t *Tree) At(name ...string) string { return filepath.Join(append([]string{t.dir}, name...)...) }

// Fetch copies the sources of a module, which the sum database has the sums of.
func (t *Tree) Fetch(ctx context.Context, module, name string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Env = t.dir, t.env
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil {
		return fmt.Errorf("download %s: %w: %s", module, err, got.Error)
	}
	if err := os.RemoveAll(t.At(name)); err != nil {
		return err
	}
	if err := os.CopyFS(t.At(name), os.DirFS(got.Dir)); err != nil {
		return err
	}
	return t.Run(ctx, name, "go", "mod", "edit", "-toolchain=none")
}

// Patch applies patches to what was fetched, which uses the library from then on.
func (t *Tree) Patch(ctx context.Context, name string, patches ...string) error {
	for _, patch := range patches {
		patch, err := filepath.Abs(patch)
		if err != nil {
			return err
		}
		if err := t.Run(ctx, name, "git", "apply", patch); err != nil {
			return err
		}
	}
	return t.Use(ctx, name)
}

// Use lets a module in the tree use the library.
func (t *Tree) Use(ctx context.Context, name string) error {
	return t.Run(ctx, name, "go", "mod", "edit", "-require="+Library+"@"+t.version)
}

// Fault lets a module in the tree use a copy of the library with a fault in it.
func (t *Tree) Fault(ctx context.Context, name, file, sound, faulty string) error {
	if err := t.Fetch(ctx, Library+"@"+t.version, "fault"); err != nil {
		return err
	}
	if err := Replace(t.At("fault", file), sound, faulty); err != nil {
		return err
	}
	return t.Run(ctx, name, "go", "mod", "edit", "-replace="+Library+"="+t.At("fault"))
}

// Mend takes that copy away again.
func (t *Tree) Mend(ctx context.Context, name string) error {
	return t.Run(ctx, name, "go", "mod", "edit", "-dropreplace="+Library)
}

// Replace replaces what a file must hold once.
func Replace(name, old, by string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if strings.Count(string(text), old) != 1 {
		return fmt.Errorf("%s does not hold %q once", name, old)
	}
	return os.WriteFile(name, []byte(strings.Replace(string(text), old, by, 1)), 0o644)
}

// Copy copies files into a directory of the tree.
func (t *Tree) Copy(dir string, files ...string) error {
	if err := os.MkdirAll(t.At(dir), 0o755); err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(t.At(dir, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Run runs a program in a directory of the tree. What it prints is in the error.
func (t *Tree) Run(ctx context.Context, dir, name string, args ...string) error {
	cmd := t.command(ctx, dir, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out.Bytes())
	}
	return nil
}

// Show runs a program in a directory of the tree, and shows what it prints.
func (t *Tree) Show(ctx context.Context, dir, name string, args ...string) error {
	cmd := t.command(ctx, dir, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func (t *Tree) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = t.At(dir), t.env
	return cmd
}

// Package upstream fetches published sources of other projects, applies patches, and builds them with the
// library of this checkout.
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
)

// library is the module that the patches import, and libraryDir its directory in the checkout.
const (
	library    = "github.com/leaderlease/go/leaderlease"
	libraryDir = "leaderlease"
)

// Tree is a directory in which sources are built.
type Tree struct {
	dir     string
	library string // the directory that replaces the library's module
	env     []string
}

// New returns a Tree in dir. The process runs in the root of the checkout.
func New(dir string) (*Tree, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	from, err := filepath.Abs(libraryDir)
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -buildvcs=false", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	return &Tree{dir: dir, library: from, env: env}, os.MkdirAll(dir, 0o755)
}

// At is a path in the tree.
func (t *Tree) At(name ...string) string { return filepath.Join(append([]string{t.dir}, name...)...) }

// Fetch copies the sources of a module version into the tree.
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

// Patch applies patches to sources in the tree, which use the library from then on.
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

// Use makes a module in the tree require the library of the checkout.
func (t *Tree) Use(ctx context.Context, name string) error { return t.use(ctx, name, t.library) }

func (t *Tree) use(ctx context.Context, name, dir string) error {
	return t.Run(ctx, name, "go", "mod", "edit", "-require="+library+"@v0.1.0", "-replace="+library+"="+dir)
}

// Fault makes a module in the tree use a copy of the library with a fault in it.
func (t *Tree) Fault(ctx context.Context, name, file, sound, faulty string) error {
	if err := os.RemoveAll(t.At("fault")); err != nil {
		return err
	}
	if err := os.CopyFS(t.At("fault"), os.DirFS(t.library)); err != nil {
		return err
	}
	if err := Replace(t.At("fault", file), sound, faulty); err != nil {
		return err
	}
	return t.use(ctx, name, t.At("fault"))
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

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/leaderlease/go/internal/modules"
)

// tidy runs go mod tidy in each module, against a packed copy of them all. The
// sums of our own modules are left out: they change with each edit, and neither
// go.work nor go install of a version reads them.
func tidy(ctx context.Context, root string) (err error) {
	all, err := modules.All(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := modules.Pack(filepath.Join(dir, "proxy"), all, modules.Required); err != nil {
		return err
	}
	env, _, err := modules.Env(ctx, filepath.Join(dir, "proxy"))
	if err != nil {
		return err
	}
	// A cache of its own, filled from the usual one, keeps our modules out of the latter.
	env = append(env, "GOMODCACHE="+filepath.Join(dir, "cache"))
	for _, m := range all {
		cmd := exec.CommandContext(ctx, "go", "mod", "tidy")
		cmd.Dir = m.Dir
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: go mod tidy: %w\n%s", m.Dir, err, out)
		}
		if err := forget(filepath.Join(m.Dir, "go.sum"), all); err != nil {
			return err
		}
	}
	return nil
}

// forget takes the lines of our own modules out of a go.sum.
func forget(name string, all []modules.Module) error {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept bytes.Buffer
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		path, _, _ := strings.Cut(lines.Text(), " ")
		if !modules.Own(all, path) {
			kept.WriteString(lines.Text() + "\n")
		}
	}
	return os.WriteFile(name, kept.Bytes(), 0o644)
}

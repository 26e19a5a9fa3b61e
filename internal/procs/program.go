package procs

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program is a server that takes etcd's flags.
type Program struct {
	Name string
	Path string   // of the binary
	Args []string // in front of the flags
}

// Build compiles the package pkg, as seen from the module in dir, to the binary
// out.
func Build(ctx context.Context, dir, pkg, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// ModuleDir returns the directory of a module that the module of the working
// directory requires.
func ModuleDir(ctx context.Context, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

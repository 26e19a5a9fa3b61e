package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const testsModule = "go.etcd.io/etcd/tests/v3"

// The repository, seen from here, and its copy of a file that a test reads.
const (
	repository   = "../.."
	sampleConfig = repository + "/cmd/kvnode/internal/settings/testdata/etcd.conf.yml.sample"
)

// bench is a directory laid out as etcd's tests expect it: bin/ beside tests/,
// which is a copy, since they write where they stand.
type bench struct {
	dir  string
	logs string // where to keep what tests say; empty: nowhere
	fast bool   // the tests' clients send by package fastkv
}

func (b bench) bin() string              { return filepath.Join(b.dir, "bin") }
func (b bench) kvnode() string           { return filepath.Join(b.bin(), "kvnode") }
func (b bench) home(suite string) string { return filepath.Join(b.dir, "tests", suite) }
func (b bench) binary(suite string) string {
	return filepath.Join(b.bin(), strings.ReplaceAll(suite, "/", "-")+".test")
}

// etcdScript stands for etcd: kvnode, and etcd's own proxies, which are to run in
// front of it. Tests listen in plain text on all addresses, which kvnode wants to
// be told.
const etcdScript = `#!/bin/sh
case $1 in gateway|grpc-proxy) exec "${0%etcd}proxy" "$@" ;; esac
export KVNODE_ALLOW_PLAINTEXT=true
exec "${0%etcd}kvnode" "$@"
`

// furnish fills the directory: etcd's tests at the version in go.mod, kvnode
// under the name of etcd, and what they need.
func (b bench) furnish(ctx context.Context, suites []string) error {
	tests, err := moduleDir(ctx, testsModule)
	if err != nil {
		return err
	}
	if err := copyWritable(tests, filepath.Join(b.dir, "tests")); err != nil {
		return fmt.Errorf("copy %s: %w", testsModule, err)
	}
	if err := patch(filepath.Join(b.dir, "tests")); err != nil {
		return err
	}
	if b.fast {
		if err := b.quicken(ctx); err != nil {
			return err
		}
	}
	if err := copyFile(sampleConfig, filepath.Join(b.dir, "etcd.conf.yml.sample")); err != nil {
		return err
	}
	if err := b.build(ctx, suites); err != nil {
		return err
	}
	// What runs there must not take it for its module.
	if err := os.Remove(filepath.Join(b.dir, "tests", "go.mod")); err != nil {
		return fmt.Errorf("copy %s: %w", testsModule, err)
	}
	return nil
}

// build makes the programs and the suites, these of the copy.
func (b bench) build(ctx context.Context, suites []string) error {
	modfile := filepath.Join(b.dir, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(name, filepath.Join(b.dir, name)); err != nil {
			return err
		}
	}
	mod := "-mod=readonly"
	if b.fast {
		mod = "-mod=mod" // what this repository requires besides
		if err := b.requireOwn(ctx, modfile); err != nil {
			return err
		}
	}
	builds := [][]string{
		{"build", "-C", repository, "-o", b.kvnode(), "./cmd/kvnode"},
		{"build", "-o", b.bin() + "/", "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdutl/v3"},
		{"build", "-o", filepath.Join(b.bin(), "proxy"), "go.etcd.io/etcd/server/v3"},
		{"mod", "edit", "-replace", testsModule + "=" + filepath.Join(b.dir, "tests"), modfile},
	}
	for _, suite := range suites {
		builds = append(builds, []string{"test", "-c", "-trimpath", mod, "-modfile", modfile, "-tags", "e2e", "-o", b.binary(suite), testsModule + "/" + suite})
	}
	for _, args := range builds {
		if _, err := goTool(ctx, args...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(b.bin(), "etcd"), []byte(etcdScript), 0o700); err != nil {
		return fmt.Errorf("write what stands for etcd: %w", err)
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(filepath.Clean(from))
	if err != nil {
		return fmt.Errorf("run this in its own directory: %w", err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// copyWritable copies a directory of the module cache, which is read-only.
func copyWritable(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o600)
	})
}

// moduleDir downloads a module that go.mod requires, and says where it is.
func moduleDir(ctx context.Context, module string) (string, error) {
	out, err := goTool(ctx, "mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", fmt.Errorf("where %s is: %w", module, err)
	}
	return m.Dir, nil
}

// goTool runs the go command and returns what it prints.
func goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	if slices.Contains(args, "-modfile") {
		cmd.Env = append(os.Environ(), "GOWORK=off") // it knows no workspace
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %v: %w", args, err)
	}
	return out, nil
}

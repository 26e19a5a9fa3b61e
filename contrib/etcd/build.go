package main

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

const (
	serverModule = "go.etcd.io/etcd/server/v3"
	testsModule  = "go.etcd.io/etcd/tests/v3"
	etcdVersion  = "v3.7.3"
	library      = "github.com/leaderlease/go/leaderlease"
	gate         = "LeaderLeaseReads"
)

// tree is a directory in which etcd is built with the patch.
type tree struct {
	dir     string
	version string // of the library
	env     []string
	cache   string // of modules
}

// at is a path in the tree.
func (t *tree) at(name ...string) string { return filepath.Join(append([]string{t.dir}, name...)...) }

// build leaves etcd with the patch and as it is in dir, as etcd-lease and etcd-stock.
func build(ctx context.Context, dir string) (err error) {
	t, err := newTree(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, modules.Forget(t.cache, library, t.version)) }()
	if err := t.patched(ctx, "server"); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		if err := copyFile(t.at("program", name), filepath.Join("bench", "etcd", name)); err != nil {
			return err
		}
	}
	if err := t.run(ctx, "program", "go", "build", "-o", t.at("etcd-stock"), "."); err != nil {
		return err
	}
	if err := t.use(ctx, "program", "server"); err != nil {
		return err
	}
	return t.run(ctx, "program", "go", "build", "-o", t.at("etcd-lease"), ".")
}

// newTree packs the library into a file proxy in dir.
func newTree(ctx context.Context, dir string) (*tree, error) {
	t := &tree{dir: dir}
	for _, name := range []string{"proxy", "program"} {
		if err := os.MkdirAll(t.at(name), 0o755); err != nil {
			return nil, err
		}
	}
	out, err := exec.CommandContext(ctx, "go", "run", "./internal/release", "try", t.at("proxy")).Output()
	if err != nil {
		return nil, fmt.Errorf("pack the library: %w", err)
	}
	t.version = strings.TrimSpace(string(out))
	t.env, t.cache, err = modules.Env(ctx, t.at("proxy"))
	t.env = append(t.env, "GOFLAGS=-mod=mod -modcacherw -buildvcs=false", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	return t, err
}

// patched puts the sources of etcd's server, with the patch, into a directory.
func (t *tree) patched(ctx context.Context, name string) error {
	patch, err := filepath.Abs(filepath.Join("contrib", "etcd", "lease.patch"))
	if err != nil {
		return err
	}
	if err := t.fetch(ctx, serverModule, name); err != nil {
		return err
	}
	if err := t.run(ctx, name, "git", "apply", patch); err != nil {
		return err
	}
	return t.run(ctx, name, "go", "mod", "edit", "-require="+library+"@"+t.version)
}

// fetch copies the sources of a module, and lets its neighbours come from the proxy.
func (t *tree) fetch(ctx context.Context, module, name string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+etcdVersion)
	cmd.Dir, cmd.Env = t.at("program"), t.env
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil {
		return fmt.Errorf("download %s: %w: %s", module, err, got.Error)
	}
	if err := os.RemoveAll(t.at(name)); err != nil {
		return err
	}
	if err := os.CopyFS(t.at(name), os.DirFS(got.Dir)); err != nil {
		return err
	}
	edit := []string{"mod", "edit", "-toolchain=none"}
	for _, neighbour := range []string{"api", "cache", "client/pkg", "client", "etcdctl", "etcdutl", "pkg", "server"} {
		edit = append(edit, "-dropreplace=go.etcd.io/etcd/"+neighbour+"/v3")
	}
	return t.run(ctx, name, "go", edit...)
}

// use lets the module in dir use the patched server.
func (t *tree) use(ctx context.Context, dir, server string) error {
	return t.run(ctx, dir, "go", "mod", "edit", "-replace="+serverModule+"=../"+server, "-require="+library+"@"+t.version)
}

func (t *tree) run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = t.at(dir), t.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out.Bytes())
	}
	return nil
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

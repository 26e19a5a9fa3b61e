package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/leaderlease/go/internal/modules/upstream"
)

const (
	swarmkit    = "github.com/moby/swarmkit/v2@v2.0.0"
	source      = "swarmkit" // in the tree
	logs        = "logs"     // where tests run
	raftPackage = "manager/state/raft"
)

// build leaves tests of swarmkit with the lease in dir: lease.test, and fault.test,
// in which a lease does not end.
func build(ctx context.Context, dir string) (*upstream.Tree, error) {
	t, err := upstream.New(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := t.Fetch(ctx, swarmkit, source); err != nil {
		return nil, err
	}
	if err := raft37(ctx, t); err != nil {
		return nil, err
	}
	if err := t.Patch(ctx, source, "contrib/swarmkit/raft37.patch", "contrib/swarmkit/lease.patch"); err != nil {
		return nil, err
	}
	tests, err := filepath.Glob("contrib/swarmkit/testdata/*_test.go")
	if err != nil {
		return nil, err
	}
	if err := t.Copy(filepath.Join(source, raftPackage), tests...); err != nil {
		return nil, err
	}
	if err := t.Run(ctx, source, "go", "build", "./..."); err != nil {
		return nil, err
	}
	test := []string{"test", "-vet=off", "-c", "./" + raftPackage, "-o"}
	if err := t.Run(ctx, source, "go", append(test, t.At("lease.test"))...); err != nil {
		return nil, err
	}
	if err := t.Copy(source+"-mod", t.At(source, "go.mod")); err != nil {
		return nil, err
	}
	const sound = "v.Status == Valid && v.From <= now && now < v.Usable"
	if err := t.Fault(ctx, source, "core/view.go", sound, strings.TrimSuffix(sound, " && now < v.Usable")); err != nil {
		return nil, err
	}
	if err := t.Run(ctx, source, "go", append(test, t.At("fault.test"))...); err != nil {
		return nil, err
	}
	return t, t.Copy(source, t.At(source+"-mod", "go.mod"))
}

// raft37 lets swarmkit require raft 3.7 and etcd's log for it. raft37.patch has the rest.
func raft37(ctx context.Context, t *upstream.Tree) error {
	if err := os.MkdirAll(t.At(logs), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(t.At(source, "vendor")); err != nil {
		return err
	}
	return t.Run(ctx, source, "go", "mod", "edit", "-go=1.26", "-droprequire=go.etcd.io/etcd/raft/v3",
		"-require=go.etcd.io/raft/v3@v3.7.0", "-require=go.etcd.io/etcd/server/v3@v3.7.1",
		"-require=go.etcd.io/etcd/pkg/v3@v3.7.1", "-require=go.etcd.io/etcd/client/pkg/v3@v3.7.1",
		"-require=github.com/anishathalye/porcupine@v1.1.0")
}

// stale reports whether a test has found reads that no single copy would have shown.
func stale(err error) bool {
	return strings.Contains(err.Error(), "Illegal: ") && strings.Contains(err.Error(), "are not those of one copy")
}

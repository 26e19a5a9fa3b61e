package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/leaderlease/go/contrib/internal/upstream"
)

const (
	swarmkit    = "github.com/moby/swarmkit/v2@v2.0.0"
	source      = "swarmkit" // in the tree
	logs        = "logs"     // where tests run
	raftPackage = "manager/state/raft"
)

// What a fault takes out of the library: a lease that does not end.
const (
	faultIn = "core/view.go"
	sound   = "v.Status == Valid && v.From <= now && now < v.Usable"
	faulty  = "v.Status == Valid && v.From <= now"
)

// build leaves tests of swarmkit with the lease in the tree: lease.test, and
// fault.test, whose library has the fault.
func build(ctx context.Context, t *upstream.Tree) error {
	if err := t.Fetch(ctx, swarmkit, source); err != nil {
		return err
	}
	if err := raft37(ctx, t); err != nil {
		return err
	}
	if err := t.Patch(ctx, source, "contrib/swarmkit/raft37.patch", "contrib/swarmkit/lease.patch"); err != nil {
		return err
	}
	tests, err := filepath.Glob("contrib/swarmkit/testdata/*_test.go")
	if err != nil {
		return err
	}
	if err := t.Copy(filepath.Join(source, raftPackage), tests...); err != nil {
		return err
	}
	if err := t.Run(ctx, source, "go", "build", "./..."); err != nil {
		return err
	}
	test := []string{"test", "-vet=off", "-c", "./" + raftPackage, "-o"}
	if err := t.Run(ctx, source, "go", append(test, t.At("lease.test"))...); err != nil {
		return err
	}
	if err := t.Fault(ctx, source, faultIn, sound, faulty); err != nil {
		return err
	}
	if err := t.Run(ctx, source, "go", append(test, t.At("fault.test"))...); err != nil {
		return err
	}
	return t.Use(ctx, source)
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

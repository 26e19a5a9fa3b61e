package main

import (
	"context"

	"github.com/leaderlease/go/contrib/internal/upstream"
)

const (
	serverModule = "go.etcd.io/etcd/server/v3"
	testsModule  = "go.etcd.io/etcd/tests/v3"
	etcdVersion  = "v3.7.3"
	gate         = "LeaderLeaseReads"
)

// tree is a directory in which etcd is built with the patch.
type tree struct{ *upstream.Tree }

// build leaves etcd with the patch and as it is in dir, as etcd-lease and etcd-stock.
func build(ctx context.Context, dir string) error {
	t, err := newTree(dir)
	if err != nil {
		return err
	}
	if err := t.patched(ctx, "server"); err != nil {
		return err
	}
	if err := t.Copy("program", "bench/etcd/go.mod", "bench/etcd/go.sum", "bench/etcd/main.go"); err != nil {
		return err
	}
	if err := t.Run(ctx, "program", "go", "build", "-o", t.At("etcd-stock"), "."); err != nil {
		return err
	}
	if err := t.use(ctx, "program", "server"); err != nil {
		return err
	}
	return t.Run(ctx, "program", "go", "build", "-o", t.At("etcd-lease"), ".")
}

func newTree(dir string) (tree, error) {
	t, err := upstream.New(dir)
	return tree{t}, err
}

// patched puts the sources of etcd's server, with the patch, into a directory.
func (t tree) patched(ctx context.Context, name string) error {
	if err := t.fetch(ctx, serverModule, name); err != nil {
		return err
	}
	return t.Patch(ctx, name, "contrib/etcd/lease.patch")
}

// fetch copies the sources of a module, and lets its neighbours come from the proxy.
func (t tree) fetch(ctx context.Context, module, name string) error {
	if err := t.Fetch(ctx, module+"@"+etcdVersion, name); err != nil {
		return err
	}
	edit := []string{"mod", "edit"}
	for _, neighbour := range []string{"api", "cache", "client/pkg", "client", "etcdctl", "etcdutl", "pkg", "server"} {
		edit = append(edit, "-dropreplace=go.etcd.io/etcd/"+neighbour+"/v3")
	}
	return t.Run(ctx, name, "go", edit...)
}

// use lets the module in dir use the patched server.
func (t tree) use(ctx context.Context, dir, server string) error {
	if err := t.Run(ctx, dir, "go", "mod", "edit", "-replace="+serverModule+"=../"+server); err != nil {
		return err
	}
	return t.Use(ctx, dir)
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

const (
	clientModule = "go.etcd.io/etcd/client/v3"
	ownModule    = "github.com/leaderlease/go"
	// fastSuites are those whose clients run in the tests' own processes.
	fastSuites = "integration,integration/clientv3,integration/clientv3/concurrency,integration/clientv3/connectivity," +
		"integration/clientv3/experimental/recipes,integration/clientv3/lease,integration/clientv3/naming,integration/clientv3/watch"
)

// fastEdits let the tests replace the path of the client to the KV service: package fastkv imports
// clientv3, and is added from testdata/fastkv.
var fastEdits = map[string][]edit{
	"client/kv.go": {
		{old: "func NewKV(c *Client) KV {\n\tapi := &kv{remote: RetryKVClient(c)}", replacement: "var KVClient = RetryKVClient\n\nfunc NewKV(c *Client) KV {\n\tapi := &kv{remote: KVClient(c)}"},
	},
	// Tests that send messages as they are.
	"tests/" + framework + "/cluster_direct.go": {
		{old: "pb.NewKVClient(c.ActiveConnection())", replacement: "clientv3.KVClient(c)"},
	},
}

// quicken has all clients of the tests send by package fastkv.
func (b bench) quicken(ctx context.Context) error {
	client, err := moduleDir(ctx, clientModule)
	if err != nil {
		return err
	}
	if err := copyWritable(client, filepath.Join(b.dir, "client")); err != nil {
		return fmt.Errorf("copy %s: %w", clientModule, err)
	}
	for name, list := range fastEdits {
		if err := change(filepath.Join(b.dir, name), list); err != nil {
			return fmt.Errorf("patch etcd's client: %w", err)
		}
	}
	return copyFile("testdata/fastkv/fastkv.go", filepath.Join(b.dir, "tests", framework, "fastkv.go"))
}

// requireOwn adds this repository, and the client, to the copy of go.mod, and its sums to
// that of go.sum.
func (b bench) requireOwn(ctx context.Context, modfile string) error {
	root, err := filepath.Abs(repository)
	if err != nil {
		return fmt.Errorf("where the repository is: %w", err)
	}
	edits := []string{"mod", "edit", "-require", ownModule + "@v0.0.0", "-replace", clientModule + "=" + filepath.Join(b.dir, "client")}
	for _, part := range []string{"", "/leaderlease", "/leaderlease/leasetest", "/leaderlease/metrics"} {
		edits = append(edits, "-replace", ownModule+part+"="+root+part)
	}
	if _, err := goTool(ctx, append(edits, modfile)...); err != nil {
		return err
	}
	var sums []byte
	for _, name := range []string{"go.sum", filepath.Join(root, "go.sum")} {
		data, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return fmt.Errorf("run this in its own directory: %w", err)
		}
		sums = append(sums, data...)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "go.sum"), sums, 0o600); err != nil {
		return fmt.Errorf("write the sums of both: %w", err)
	}
	return nil
}

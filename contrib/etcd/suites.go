package main

import (
	"context"
	"os"

	"github.com/leaderlease/go/contrib/internal/upstream"
)

// suites runs etcd's own tests against a server whose gate is on by default.
func suites(ctx context.Context, dir, which string, packages []string) error {
	t, err := newTree(dir)
	if err != nil {
		return err
	}
	if err := t.patched(ctx, "server-on"); err != nil {
		return err
	}
	if err := turnOn(t.At("server-on", "features", "etcd_features.go")); err != nil {
		return err
	}
	if err := t.fetch(ctx, testsModule, "tests"); err != nil {
		return err
	}
	if err := t.use(ctx, "tests", "server-on"); err != nil {
		return err
	}
	// It needs a module that the proxy does not serve in this version.
	if err := os.Remove(t.At("tests", "integration", "cache_test.go")); err != nil {
		return err
	}
	return t.Show(ctx, "tests", "go", append([]string{"test", "-count=1", "-v", "-timeout=60m", "-run=" + which}, packages...)...)
}

// turnOn makes the gate's default true: etcd's tests name no gates.
func turnOn(name string) error {
	const of = gate + ":             {Default: "
	return upstream.Replace(name, of+"false", of+"true")
}

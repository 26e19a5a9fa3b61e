package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/leaderlease/go/internal/modules"
)

// suites runs etcd's own tests against a server whose gate is on by default.
func suites(ctx context.Context, dir, which string, packages []string) (err error) {
	t, err := newTree(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, modules.Forget(t.cache, library, t.version)) }()
	if err := t.patched(ctx, "server-on"); err != nil {
		return err
	}
	if err := turnOn(t.at("server-on", "features", "etcd_features.go")); err != nil {
		return err
	}
	if err := t.fetch(ctx, testsModule, "tests"); err != nil {
		return err
	}
	if err := t.use(ctx, "tests", "server-on"); err != nil {
		return err
	}
	// It needs a module that the proxy does not serve in this version.
	if err := os.Remove(t.at("tests", "integration", "cache_test.go")); err != nil {
		return err
	}
	args := append([]string{"test", "-count=1", "-v", "-timeout=60m", "-run=" + which}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = t.at("tests"), t.env, os.Stdout, os.Stderr
	return cmd.Run()
}

// turnOn makes the gate's default true: etcd's tests name no gates.
func turnOn(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	off := gate + ":             {Default: false"
	if strings.Count(string(text), off) != 1 {
		return fmt.Errorf("%s does not hold %q once", name, off)
	}
	return os.WriteFile(name, []byte(strings.Replace(string(text), off, strings.Replace(off, "false", "true", 1), 1)), 0o644)
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// turnOn finds the gate's default in the patch.
func TestTurnOnFindsTheGateOfThePatch(t *testing.T) {
	patch, err := os.ReadFile("lease.patch")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "features.go")
	if err := os.WriteFile(name, patch, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := turnOn(name); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), gate+":             {Default: true") {
		t.Error("the gate is not on")
	}
	if err := turnOn(name); err == nil {
		t.Error("turnOn() of what is on = nil, want an error")
	}
}

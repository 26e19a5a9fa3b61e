package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The texts that controls and suites replace exist in the sources.
func TestReplacedTextIsThere(t *testing.T) {
	for name, want := range map[string]string{
		"lease.patch": option,
		filepath.Join("..", "..", "leaderlease", faultIn): sound,
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), want); n != 1 {
			t.Errorf("%s holds %q %d times, want once", name, want, n)
		}
	}
}

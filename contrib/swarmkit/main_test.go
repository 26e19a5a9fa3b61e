package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is replaced for controls and suites is where it is looked for.
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

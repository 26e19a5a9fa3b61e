package demo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, fresh := range []string{dir, filepath.Join(dir, "new", "deep")} {
		if got, err := makeDir(fresh); err != nil || got != fresh {
			t.Errorf("makeDir(%q) = %q, %v; want it made", fresh, got, err)
		}
	}
	if _, err := makeDir(dir); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("makeDir of a directory with something in it: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(file); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("makeDir of a file: %v", err)
	}
}

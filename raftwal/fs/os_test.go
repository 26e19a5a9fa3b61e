package fs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// The process that made the directory may have ended before its name was
// durable, so every MakeDir syncs the parent.
func TestMakeDirSyncsTheParentOfWhatExists(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "a", "b")
	must(t, os.Mkdir(a, 0o700))
	for name, want := range map[string][]string{"missing": {root, a}, "there": {a}} {
		_ = os.Remove(b)
		if name == "there" {
			must(t, os.Mkdir(b, 0o700))
		}
		var got []string
		must(t, makeDir(b, func(dir string) error {
			got = append(got, dir)
			return nil
		}))
		if !slices.Equal(got, want) {
			t.Errorf("MakeDir() of what is %s syncs %q, want %q", name, got, want)
		}
	}
}

func TestMakeDirToleratesAnotherUsersParent(t *testing.T) {
	for _, tt := range []struct {
		name   string
		exists bool
		err    error
		want   error
	}{
		{"may not be opened", true, syscall.EACCES, nil},
		{"may not be synced", true, syscall.EPERM, nil},
		{"is a file system that syncs no directories", true, syscall.EINVAL, nil},
		{"does not know the call", true, syscall.ENOTSUP, nil},
		{"is mounted read-only", true, syscall.EROFS, nil},
		{"fails", true, syscall.EIO, syscall.EIO},
		{"has no room", true, syscall.ENOSPC, syscall.ENOSPC},
		{"may not be opened, and has a new name", false, syscall.EACCES, syscall.EACCES},
		{"syncs no directories, and has a new name", false, syscall.EINVAL, syscall.EINVAL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "log")
			if tt.exists {
				must(t, os.Mkdir(dir, 0o700))
			}
			got := makeDir(dir, func(parent string) error {
				if parent != root {
					return nil
				}
				return &os.PathError{Op: "sync", Path: parent, Err: tt.err}
			})
			if !errors.Is(got, tt.want) {
				t.Errorf("MakeDir() = %v, want %v", got, tt.want)
			}
		})
	}
}

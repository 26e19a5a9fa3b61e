package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leaderlease/go/kvnode/restore"
)

// CheckDataDir reports why dir cannot be a data directory. It leaves nothing
// behind: a directory that is missing is not made, only the one it would be made
// in is tried.
func CheckDataDir(dir string) error {
	there, err := nearest(dir)
	if err != nil {
		return fmt.Errorf("Node.DataDir %q: %w", dir, err)
	}
	if there == dir {
		if err := foreign(dir); err != nil {
			return fmt.Errorf("Node.DataDir %q: %w", dir, err)
		}
	}
	f, err := os.CreateTemp(there, ".kvnode-*")
	if err != nil {
		return fmt.Errorf("Node.DataDir %q is not writable: %w", dir, err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("Node.DataDir %q: %w", dir, err)
	}
	return nil
}

// nearest returns dir, or the nearest directory above it that exists.
func nearest(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%q is a file, not a directory", dir)
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", err
		}
		dir = parent
	}
}

// foreign reports whether another program keeps its data in dir.
func foreign(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "member", "wal")); err == nil {
		return errors.New("this is the data of an etcd member, which kvnode cannot read; " + restore.FromEtcd)
	}
	return nil
}

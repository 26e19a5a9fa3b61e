//go:build !unix

package fs

import (
	"errors"
	"fmt"
	"runtime"
)

// SyncDir fails: this system cannot make a rename durable.
func SyncDir(string) error {
	return fmt.Errorf("fs: a directory cannot be synced on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func neverSyncs(error) bool { return false }

var errQuota = errors.New("fs: quota exceeded")

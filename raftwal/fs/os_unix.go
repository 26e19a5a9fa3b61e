//go:build unix

package fs

import (
	"errors"
	"os"
	"syscall"
)

// SyncDir makes the names in dir durable. Where a system cannot do that, it says
// so: nothing that was renamed there is certain to be found after a crash.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// neverSyncs reports whether err says that a directory is of a kind that cannot
// be synced: what a mount point is in often is, and one that cannot be written.
// It says nothing of a sync that has failed.
func neverSyncs(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS) || errors.Is(err, errors.ErrUnsupported)
}

var errQuota error = syscall.EDQUOT

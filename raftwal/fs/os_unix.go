//go:build unix

package fs

import (
	"errors"
	"os"
	"syscall"
)

// SyncDir makes the names in dir durable. It fails on systems that cannot do that.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// neverSyncs reports whether err means that a directory cannot be synced at all, such as
// many parents of mount points. It is false for a sync that has failed.
func neverSyncs(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS) || errors.Is(err, errors.ErrUnsupported)
}

var errQuota error = syscall.EDQUOT

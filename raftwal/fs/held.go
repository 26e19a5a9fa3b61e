package fs

import (
	"errors"
	"os"
)

// CheckLock returns ErrLocked if another process holds the lock that Lock takes
// with the file at path. It makes no file; what there is it locks for a moment.
func CheckLock(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // NFS locks only what can be written
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(lockFile(f), f.Close())
}

package fs

import (
	"errors"
	"io"
	"os"
)

// CheckLock returns ErrLocked if another process holds the lock that Lock takes
// with the file at path. It makes no file; what there is it locks for a moment.
func CheckLock(path string) error {
	lock, err := Hold(path)
	if err != nil {
		return err
	}
	return lock.Close()
}

// Hold keeps others from taking the lock that Lock takes with the file at path, until it
// is closed; any number may hold it together. It makes no file: if there is none, there
// is nothing to lock. A file that can only be read is locked all the same.
func Hold(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // NFS locks only what can be written
	if errors.Is(err, os.ErrNotExist) {
		return noLock{}, nil
	}
	if err != nil {
		if f, err = os.Open(path); err != nil {
			return nil, err
		}
	}
	if err := shareLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// noLock is that of a file that is missing.
type noLock struct{}

func (noLock) Close() error { return nil }

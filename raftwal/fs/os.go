package fs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// OS returns the directory dir of the operating system. It must exist.
func OS(dir string) (FS, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	return osDir(dir), nil
}

// MakeDir makes dir and its missing parents durably. It also makes the name of an existing
// dir durable, because the process that made dir may have died before its sync. If dir exists
// and its parent may not be opened or cannot be synced, MakeDir returns nil.
func MakeDir(dir string) error { return makeDir(filepath.Clean(dir), SyncDir) }

func makeDir(dir string, sync func(dir string) error) error {
	parent := filepath.Dir(dir)
	_, err := os.Stat(dir)
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if parent == dir {
		return err
	}
	if missing {
		if err := makeDir(parent, sync); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	// If the parent loses the name of the directory, the log is lost.
	err = sync(parent)
	if !missing && (errors.Is(err, os.ErrPermission) || neverSyncs(err)) {
		return nil
	}
	return err
}

// osDir is a directory of the operating system, by its path.
type osDir string

func (d osDir) path(name string) string { return filepath.Join(string(d), name) }

// Names implements FS.
func (d osDir) Names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Create implements FS.
func (d osDir) Create(name string) (File, error) {
	return open(d.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Open implements FS.
func (d osDir) Open(name string) (File, error) { return open(d.path(name), os.O_RDWR) }

// OpenRead implements FS.
func (d osDir) OpenRead(name string) (File, error) { return open(d.path(name), os.O_RDONLY) }

// Rename implements FS.
func (d osDir) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }

// Remove implements FS.
func (d osDir) Remove(name string) error { return os.Remove(d.path(name)) }

// Sync implements FS.
func (d osDir) Sync() error { return SyncDir(string(d)) }

// Lock implements FS.
func (d osDir) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// CheckLock holds the lock for a moment.
	err = lockFile(f)
	for try := 1; errors.Is(err, ErrLocked) && try < lockTries; try++ {
		time.Sleep(lockPause)
		err = lockFile(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Lock tries a few times, for a tenth of a second in all.
const (
	lockTries = 10
	lockPause = 10 * time.Millisecond
)

// osFile is a file of the operating system.
type osFile struct{ *os.File }

func open(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Sync implements File.
func (f osFile) Sync() error { return syncData(f.File) }

// Size implements File.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// CheckLock returns ErrLocked if the file at path is locked with Lock. It makes no file, and
// holds a shared lock of an existing one for a moment.
func CheckLock(path string) error {
	lock, err := Hold(path)
	if err != nil {
		return err
	}
	return lock.Close()
}

// Hold takes a shared lock of the file at path. Lock fails until the result is closed. Hold
// makes no file, and does nothing for a missing one. It also locks a file that this process
// may only read.
func Hold(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // NFS locks only files that are open for writing
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

// noLock is the lock of a missing file.
type noLock struct{}

func (noLock) Close() error { return nil }

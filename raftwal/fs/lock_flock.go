//go:build illumos || (unix && !aix && !solaris)

package fs

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes an exclusive lock of flock, which ends with the process.
func lockFile(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// shareLock takes a shared lock.
func shareLock(f *os.File) error { return flock(f, syscall.LOCK_SH) }

func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lerr error
	err = conn.Control(func(fd uintptr) {
		lerr = syscall.Flock(int(fd), how|syscall.LOCK_NB)
	})
	if err != nil {
		return err
	}
	if errors.Is(lerr, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return os.NewSyscallError("flock", lerr)
}

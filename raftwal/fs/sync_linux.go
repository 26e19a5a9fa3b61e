package fs

import (
	"os"
	"syscall"
)

// syncData leaves out what fsync adds, the time of the last change: a journal
// commit per call.
func syncData(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) {
		serr = syscall.Fdatasync(int(fd))
		for serr == syscall.EINTR {
			serr = syscall.Fdatasync(int(fd))
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("fdatasync", serr)
}

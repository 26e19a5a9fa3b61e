package fs

import (
	"os"
	"syscall"
)

// syncData is fdatasync. fsync would also write the time of the last change, which costs a
// commit of the file system's journal.
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

package supervisor

import (
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// inherited is the file by which a child knows its guardian: the first after the standard ones.
const inherited = 3

// Inherit returns this process's guardian, nil if it has none. It may be called once.
func Inherit() (*Ward, error) {
	if !fromParent(inherited) {
		return nil, nil //nolint:nilnil // no guardian is no error: the file is somebody else's
	}
	file := os.NewFile(inherited, "guardian")
	conn, err := net.FileConn(file)
	_ = file.Close() // conn has its own, which this process's children do not inherit
	if err != nil {
		return nil, err
	}
	w, err := newWard(conn)
	if err != nil {
		_ = conn.Close()
		return nil, nil //nolint:nilnil,nilerr // nor is it one that the parent has opened for something else, as systemd and Node.js do
	}
	// It was started as /proc/self/exe, and ps, pgrep and the names of cores would say "exe".
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	go w.follow()
	return w, nil
}

// fromParent reports whether a file is a socket whose other end the parent of this process has made.
func fromParent(fd int) bool {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && int(cred.Pid) == os.Getppid()
}

// follow ends this process with its guardian's, as the system does by itself, but not where the
// program has capabilities of its own (PR_SET_PDEATHSIG). Another guardian would start it again beside this one.
func (w *Ward) follow() {
	_, _ = w.conn.Read(make([]byte, 1)) // the guardian says nothing more
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
}

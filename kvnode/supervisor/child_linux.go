package supervisor

import (
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// inherited is the child's file for the connection to its supervisor, the first after the standard ones.
const inherited = 3

// Connect returns this process's connection to its supervisor, or nil if it has no supervisor. Call it at most once.
func Connect() (*Client, error) {
	if !isFromParent(inherited) {
		return nil, nil //nolint:nilnil // the file is not a supervisor's: no error
	}
	file := os.NewFile(inherited, "supervisor")
	conn, err := net.FileConn(file)
	_ = file.Close() // conn has its own file, which the children of this process do not inherit
	if err != nil {
		return nil, err
	}
	c, err := newClient(conn)
	if err != nil {
		_ = conn.Close()
		return nil, nil //nolint:nilnil,nilerr // a socket that the parent uses otherwise, as systemd and Node.js do
	}
	// The program was started as /proc/self/exe, so ps, pgrep and core files would call it "exe".
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	go c.dieWithSupervisor()
	return c, nil
}

// isFromParent reports whether fd is a socket that the parent of this process has made.
func isFromParent(fd int) bool {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && int(cred.Pid) == os.Getppid()
}

// dieWithSupervisor kills this process when the supervisor has exited. Otherwise the next supervisor would start the
// member a second time. Linux also kills the process (PR_SET_PDEATHSIG), but not if its program has file
// capabilities.
func (c *Client) dieWithSupervisor() {
	_, _ = c.conn.Read(make([]byte, 1)) // the supervisor sends nothing after the greeting
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
}

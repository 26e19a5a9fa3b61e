package wire

import "syscall"

// dieWithParent lets a server end when the benchmark does, however that ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

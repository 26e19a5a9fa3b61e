package testcluster

import "syscall"

// attributes keep Ctrl-C from members, which are ended in an order, and end them
// when this process dies without having done so. That signal is SIGKILL because a
// member that is paused would not hear any other.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

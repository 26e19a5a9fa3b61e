package demo

import "syscall"

// childAttr keeps Ctrl-C from members, which the demo stops in its own order,
// and ends them when the demo dies without having stopped them. That signal is
// SIGKILL because a member that is paused would not hear any other.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

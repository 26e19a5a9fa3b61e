package cli

import "syscall"

// untilWeEnd has the system kill a command with the thread that has started it.
func untilWeEnd() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

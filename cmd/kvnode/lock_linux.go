package main

import "syscall"

// untilWeEnd makes the kernel kill the command when the thread that started it ends.
func untilWeEnd() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// typed reports whether s comes from Ctrl-C or Ctrl-\ at a terminal. The terminal sends it to its whole
// foreground process group, which includes the command. A second copy would make many programs abort
// an orderly stop. If the command is alone in the foreground group, this process gets no signal.
func typed(s os.Signal) bool {
	if s != os.Interrupt && s != syscall.SIGQUIT {
		return false
	}
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false // there is none
	}
	defer func() { _ = terminal.Close() }()
	front, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && front == syscall.Getpgrp()
}

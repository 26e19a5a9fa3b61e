//go:build unix

package cli

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// typed reports whether s is Ctrl-C or Ctrl-\ of a terminal, which tells all processes in its
// foreground: what this one has started, too. Told twice, many give up what the first has them do in
// order. A command that has put itself in the foreground alone is told alone, and this process is not.
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

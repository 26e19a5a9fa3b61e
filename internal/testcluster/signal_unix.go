//go:build unix

package testcluster

import (
	"os"
	"syscall"
)

// pauseProcess stops a process as it stands; its memory and sockets stay.
func pauseProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// wakeProcess lets it go on.
func wakeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

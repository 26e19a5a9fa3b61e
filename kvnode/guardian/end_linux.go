package guardian

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// End ends this process as the child was, if that was by a signal that ends a process without a word.
// Otherwise it returns what the child ended with: nil, or an exec.ExitError.
func (d *Death) End() error {
	w, _ := d.State.Sys().(syscall.WaitStatus)
	if !w.Signaled() {
		if d.State.Success() {
			return nil
		}
		return &exec.ExitError{ProcessState: d.State}
	}
	switch s := w.Signal(); s {
	case unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP:
		if os.Getpid() == 1 {
			break // the first process of a container gets no signal that it sends itself
		}
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
		time.Sleep(time.Second) // it comes at once
	}
	os.Exit(128 + int(w.Signal())) // as shells say it: the runtime would write stacks, or a core, of this process
	return nil
}

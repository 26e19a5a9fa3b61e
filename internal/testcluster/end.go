package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lookEvery is how often a log is looked at for the line that says ready.
const lookEvery = 5 * time.Millisecond

// WaitReady waits until the process has said that it serves clients.
func (m *Member) WaitReady(ctx context.Context) error {
	r := m.current()
	if r == nil {
		return fmt.Errorf("member %s was never started", m.Name)
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !m.saysReady(r.begin) {
		select {
		case <-tick.C:
		case <-r.done:
			return fmt.Errorf("member %s ended before it served: %v\n%s", m.Name, r.cmd.ProcessState, m.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("member %s does not serve: %w\n%s", m.Name, ctx.Err(), m.LogTail())
		}
	}
	return nil
}

// WaitExit waits until the process ends by itself and returns its exit code, -1
// if a signal ended it.
func (m *Member) WaitExit(ctx context.Context) (int, error) {
	r := m.current()
	if r == nil {
		return 0, fmt.Errorf("member %s was never started", m.Name)
	}
	select {
	case <-r.done:
		return r.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("member %s does not end: %w\n%s", m.Name, ctx.Err(), m.LogTail())
	}
}

// Pause stops the process with SIGSTOP; its memory and sockets stay.
func (m *Member) Pause() error { return m.signal("pause", pauseProcess) }

// Resume wakes a paused process with SIGCONT.
func (m *Member) Resume() error { return m.signal("wake", wakeProcess) }

func (m *Member) signal(what string, send func(*os.Process) error) error {
	r, err := m.running(what)
	if err != nil {
		return err
	}
	to := r.cmd.Process
	if m.Program.Guarded {
		to, err = m.Ward()
	}
	if err == nil {
		err = send(to)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, m.Name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL, even if paused, and waits. A member that
// does not run is not an error.
func (m *Member) Kill() error {
	r := m.current()
	if r == nil {
		return nil
	}
	if err := r.kill(); err != nil {
		return fmt.Errorf("kill %s: %w", m.Name, err)
	}
	<-r.done
	return nil
}

// KillWard ends the member with SIGKILL, and waits for whoever guards it, too.
func (m *Member) KillWard() error {
	r, err := m.running("kill")
	if err != nil {
		return err
	}
	r.expected.Store(true)
	if err := m.signal("kill", (*os.Process).Kill); err != nil {
		return err
	}
	<-r.done
	return nil
}

// Crash ends the process as a panic does, and waits: at SIGABRT Go's runtime prints the stacks
// of all goroutines and exits with code 2, unless the program panics of itself then.
func (m *Member) Crash() error {
	r, err := m.running("crash")
	if err != nil {
		return err
	}
	r.expected.Store(true)
	if err := m.signal("crash", func(p *os.Process) error { return p.Signal(syscall.SIGABRT) }); err != nil {
		return err
	}
	<-r.done
	return nil
}

// Terminate asks the process to end with SIGTERM, even if paused, and waits for
// its exit code.
func (m *Member) Terminate(ctx context.Context) (int, error) {
	if r, err := m.running("end"); err == nil {
		r.expected.Store(true)
		_ = m.signal("wake", wakeProcess) // who is paused does not hear that it should end
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return 0, fmt.Errorf("end %s: %w", m.Name, err)
		}
	}
	return m.WaitExit(ctx)
}

// stopPatience is how long a member may take to stop in order.
const stopPatience = 15 * time.Second

// Stop asks the process to end and waits. It is an error if it does not end, or
// not in order. A member that does not run is not an error.
func (m *Member) Stop() error {
	if !m.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	code, err := m.Terminate(ctx)
	switch {
	case err != nil:
		return errors.Join(err, m.Kill())
	case code != 0:
		return fmt.Errorf("%s has not stopped in order: %v\n%s", m.Name, m.current().cmd.ProcessState, m.LogTail())
	}
	return nil
}

// Obituary says how a process ended that should not have.
func (m *Member) Obituary() string {
	r := m.current()
	if r == nil || !r.ended() {
		return m.Name + " ended by itself and was started again"
	}
	return fmt.Sprintf("%s ended by itself: %v. The end of %s:\n%s", m.Name, r.cmd.ProcessState, m.LogFile, m.LogTail())
}

package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// pollInterval is the time between two searches for readyText in a log.
const pollInterval = 5 * time.Millisecond

// WaitReady waits until the process has printed that it serves clients.
func (m *Member) WaitReady(ctx context.Context) error {
	r := m.current()
	if r == nil {
		return fmt.Errorf("member %s was never started", m.Name)
	}
	tick := time.NewTicker(pollInterval)
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
	if m.Program.Supervised {
		to, err = m.MemberProcess()
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

// KillChild ends the member's process with SIGKILL, and waits for its supervisor to end, if it has one.
func (m *Member) KillChild() error {
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

// Crash ends the process with SIGABRT, on which Go's runtime prints all stacks and exits with code 2, and
// waits for its end.
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
		_ = m.signal("wake", wakeProcess) // a paused process handles no SIGTERM
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

// ExitReport describes an unexpected end of the process, with the end of its log.
func (m *Member) ExitReport() string {
	r := m.current()
	if r == nil || !r.ended() {
		return m.Name + " ended by itself and was started again"
	}
	return fmt.Sprintf("%s ended by itself: %v. The end of %s:\n%s", m.Name, r.cmd.ProcessState, m.LogFile, m.LogTail())
}

// MemberProcess returns the process that is the member: the child if the program is a supervisor, else the
// process that Start has started.
func (m *Member) MemberProcess() (*os.Process, error) {
	r, err := m.running("find")
	if err != nil {
		return nil, err
	}
	if !m.Program.Supervised {
		return r.cmd.Process, nil
	}
	child, err := childOf(r.cmd.Process.Pid)
	if err == nil && child == 0 {
		err = errors.New("its supervisor has no child")
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", m.Name, err)
	}
	return os.FindProcess(child)
}

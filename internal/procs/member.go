package procs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
)

// Member is one member of a cluster. It may run or not, and may be started many
// times.
type Member struct {
	Name     string
	Dir      string // its data
	LogFile  string // of all its runs
	Endpoint string // for clients, host:port
	Peer     string // for other members, host:port
	// Flags are those of the next start.
	Flags []string
	// TLS is for clients, if they need it.
	TLS *tls.Config

	// Program is what the next start runs.
	Program Program
	run     *run // the newest, nil before the first
}

// run is one process.
type run struct {
	cmd  *exec.Cmd
	log  *logFile
	done chan struct{} // closed when the process has ended, and err is set
	err  error         // of Wait
}

func (r *run) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Running reports whether the member's process exists, even if paused.
func (m *Member) Running() bool { return m.run != nil && !m.run.ended() }

// Start starts the process and does not wait until it serves.
func (m *Member) Start() error {
	if m.Running() {
		return fmt.Errorf("member %s runs already", m.Name)
	}
	log, err := openLog(m.LogFile)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	cmd := exec.Command(m.Program.Path, slices.Concat(m.Program.Args, m.Flags)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", m.Name, err), log.Close())
	}
	r := &run{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		r.err = errors.Join(cmd.Wait(), log.Close())
		close(r.done)
	}()
	m.run = r
	return nil
}

// WaitReady waits until the process has said that it serves clients.
func (m *Member) WaitReady(ctx context.Context) error {
	select {
	case <-m.run.log.ready:
		return nil
	case <-m.run.done:
		return fmt.Errorf("member %s ended before it served: %w\n%s", m.Name, m.run.err, m.LogTail())
	case <-ctx.Done():
		return fmt.Errorf("member %s does not serve: %w\n%s", m.Name, ctx.Err(), m.LogTail())
	}
}

// WaitExit waits until the process ends by itself and returns its exit code, -1
// if a signal ended it.
func (m *Member) WaitExit(ctx context.Context) (int, error) {
	select {
	case <-m.run.done:
		return m.run.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("member %s does not end: %w\n%s", m.Name, ctx.Err(), m.LogTail())
	}
}

// signal sends sig. A process that has ended already is not an error.
func (m *Member) signal(sig os.Signal) error {
	if !m.Running() {
		return nil
	}
	err := m.run.cmd.Process.Signal(sig)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, m.Name, err)
	}
	return nil
}

func (m *Member) signalKill() error { return m.signal(syscall.SIGKILL) }

// Kill ends the process with SIGKILL, even if paused, and waits.
func (m *Member) Kill() error {
	if err := m.signalKill(); err != nil {
		return err
	}
	if m.run != nil {
		<-m.run.done
	}
	return nil
}

// Terminate asks the process to end with SIGTERM and waits for its exit code.
func (m *Member) Terminate(ctx context.Context) (int, error) {
	if err := m.signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	return m.WaitExit(ctx)
}

// Pause stops the process with SIGSTOP; its memory and sockets stay.
func (m *Member) Pause() error { return m.signal(syscall.SIGSTOP) }

// Resume wakes a paused process with SIGCONT.
func (m *Member) Resume() error { return m.signal(syscall.SIGCONT) }

// Wipe removes what the member has stored. It may not run.
func (m *Member) Wipe() error {
	if m.Running() {
		return fmt.Errorf("wipe %s: it runs", m.Name)
	}
	return os.RemoveAll(m.Dir)
}

// PID returns the number of the newest process.
func (m *Member) PID() int { return m.run.cmd.Process.Pid }

package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// member is one node: a directory, ports, and a process that may run or not.
type member struct {
	name   string // immutable, as all of this block
	dir    string
	log    string // file with the output of all its runs
	client string // host:port
	peer   string
	http   string
	argv   []string
	died   chan<- *member // told when a process ends that should not

	mu struct {
		sync.Mutex
		run *process // the newest, nil before the first
	}
}

// process is one run of a member.
type process struct {
	cmd      *exec.Cmd
	expected atomic.Bool   // it is being stopped
	done     chan struct{} // closed when it has ended
}

// start starts the process and does not wait until it serves.
func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.run != nil && !m.mu.run.ended() {
		return fmt.Errorf("%s runs already", m.name)
	}
	// The child writes to the file itself, so that its last words are there
	// whatever becomes of this process.
	f, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	defer func() { _ = f.Close() }() // the child has its own
	cmd := exec.Command(m.argv[0], m.argv[1:]...)
	cmd.Env = childEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	m.mu.run = p
	go m.await(p)
	return nil
}

// await ends with the process, which stop waits for.
func (m *member) await(p *process) {
	_ = p.cmd.Wait() // ProcessState says it
	expected := p.expected.Load()
	if !expected {
		m.died <- m // room for every run that a demo can have
	}
	close(p.done)
}

// childEnv leaves out what configures servers: the demo's members are
// configured by their flags alone.
func childEnv(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, "ETCD_") && !strings.HasPrefix(e, "KVNODE_") {
			kept = append(kept, e)
		}
	}
	return kept
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// current returns the newest run, nil if there was none.
func (m *member) current() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.run
}

func (m *member) running() bool {
	p := m.current()
	return p != nil && !p.ended()
}

// pause stops the process with SIGSTOP, wake lets it go on with SIGCONT.
func (m *member) pause() error { return m.signal("pause", pauseProcess) }
func (m *member) wake() error  { return m.signal("wake", wakeProcess) }

func (m *member) signal(what string, send func(*os.Process) error) error {
	p := m.current()
	if p == nil || p.ended() {
		return fmt.Errorf("%s %s: it does not run", what, m.name)
	}
	if err := send(p.cmd.Process); err != nil {
		return fmt.Errorf("%s %s: %w", what, m.name, err)
	}
	return nil
}

// kill ends the process with SIGKILL, even if paused, and waits.
func (m *member) kill() error {
	p := m.current()
	if p == nil {
		return nil
	}
	p.expected.Store(true)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", m.name, err)
	}
	<-p.done
	return nil
}

// stopPatience is how long a member may take to stop in order.
const stopPatience = 15 * time.Second

// stop asks the process to end and waits. It is an error if it does not end, or
// not in order.
func (m *member) stop() error {
	p := m.current()
	if p == nil || p.ended() {
		return nil
	}
	p.expected.Store(true)
	_ = wakeProcess(p.cmd.Process) // who is paused does not hear that it should stop
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(fmt.Errorf("stop %s: %w", m.name, err), m.kill())
	}
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		return errors.Join(fmt.Errorf("%s has not stopped within %v and was killed", m.name, stopPatience), m.kill())
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s has not stopped in order: %v\n%s", m.name, p.cmd.ProcessState, m.tail())
	}
	return nil
}

// obituary says how a process ended that should not have.
func (m *member) obituary() string {
	p := m.current()
	if p == nil || !p.ended() {
		return m.name + " ended by itself and was started again"
	}
	return fmt.Sprintf("%s ended by itself: %v. The end of %s:\n%s", m.name, p.cmd.ProcessState, m.log, m.tail())
}

// tailLines is how much of a log is shown.
const tailLines = 12

// tail returns the last lines of the log.
func (m *member) tail() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return indent("    ", err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return indent("    ", string(bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n"))))
}

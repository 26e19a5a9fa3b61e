package testcluster

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Member is one member of a cluster. It may run or not, and may be started many
// times. Any goroutine may use its methods.
type Member struct {
	Name     string
	Dir      string // its data
	LogFile  string // of all its runs
	Endpoint string // for clients, gRPC and HTTP, host:port
	Peer     string // for other members, host:port

	// Flags and Program are what the next start runs.
	Flags   []string
	Program Program
	// TLS is for clients, if they need it.
	TLS *tls.Config

	died chan<- *Member // see Config.Died

	mu struct {
		sync.Mutex
		run *run // the newest, nil before the first
	}
}

// run is one process.
type run struct {
	cmd      *exec.Cmd
	begin    int64         // of its output in the log
	expected atomic.Bool   // it is being ended
	done     chan struct{} // closed when it has ended
}

func (r *run) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// current returns the newest run, nil if there was none.
func (m *Member) current() *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.run
}

// running returns the running process, or an error that names the action that needs it.
func (m *Member) running(what string) (*run, error) {
	if r := m.current(); r != nil && !r.ended() {
		return r, nil
	}
	return nil, fmt.Errorf("%s %s: it does not run", what, m.Name)
}

// Running reports whether the member's process exists, even if paused.
func (m *Member) Running() bool {
	_, err := m.running("")
	return err == nil
}

// PID returns the number of the newest process, 0 before the first start.
func (m *Member) PID() int {
	if r := m.current(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// Start starts the process and does not wait until it serves.
func (m *Member) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.run != nil && !m.mu.run.ended() {
		return fmt.Errorf("member %s runs already", m.Name)
	}
	// The process writes to the file itself, so its last lines are there even if this process dies.
	log, begin, err := m.openLog()
	if err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd := exec.Command(m.Program.Path, slices.Concat(m.Program.Args, m.Flags)...)
	cmd.Env = environment(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	r := &run{cmd: cmd, begin: begin, done: make(chan struct{})}
	m.mu.run = r
	go m.await(r)
	return nil
}

// await waits for the end of the process.
func (m *Member) await(r *run) {
	_ = r.cmd.Wait() // ProcessState has the result
	close(r.done)    // before the send: the receiver calls ExitReport
	if !r.expected.Load() && m.died != nil {
		m.died <- m
	}
}

// environment drops the variables that configure servers: flags alone configure members.
func environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(e string) bool {
		return strings.HasPrefix(e, "ETCD_") || strings.HasPrefix(e, "KVNODE_")
	})
}

// Wipe removes the data directory of a member that does not run.
func (m *Member) Wipe() error {
	if m.Running() {
		return fmt.Errorf("wipe %s: it runs", m.Name)
	}
	return os.RemoveAll(m.Dir)
}

// kill sends SIGKILL. A process that has ended already is not an error.
func (r *run) kill() error {
	r.expected.Store(true)
	if err := r.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// readyText is in the line that a server prints once it serves clients.
const readyText = "ready to serve client requests"

// openLog opens the member's log and returns the offset at which the output of this run begins.
func (m *Member) openLog() (f *os.File, begin int64, err error) {
	f, err = os.OpenFile(m.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	begin, err = f.Seek(0, io.SeekEnd)
	return f, begin, err
}

// saysReady reports whether the log has readyText from begin on.
func (m *Member) saysReady(begin int64) bool {
	f, err := os.Open(m.LogFile)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // opened for reading
	text, err := io.ReadAll(io.NewSectionReader(f, begin, 1<<62))
	return err == nil && bytes.Contains(text, []byte(readyText))
}

// The part of a log that an error shows.
const (
	tailLines = 12
	lineWidth = 250
)

// Log returns the output of all runs of the member.
func (m *Member) Log() string {
	text, err := os.ReadFile(m.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// LogTail returns the last lines that the member printed.
func (m *Member) LogTail() string {
	lines := strings.Split(strings.TrimSpace(m.Log()), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	for i, line := range lines {
		lines[i] = m.Name + ": " + line[:min(len(line), lineWidth)]
	}
	return strings.Join(lines, "\n")
}

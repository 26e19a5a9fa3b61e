package testcluster

import (
	"crypto/tls"
	"errors"
	"fmt"
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

// running returns the process, or an error that says what cannot be done to it.
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
	// The process writes to the file itself, so that its last words are there
	// whatever becomes of this one.
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

// await ends with the process.
func (m *Member) await(r *run) {
	_ = r.cmd.Wait() // ProcessState says it
	close(r.done)    // first: who hears of the death asks how it ended
	if !r.expected.Load() && m.died != nil {
		m.died <- m
	}
}

// environment leaves out what configures servers: members are configured by their
// flags alone.
func environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(e string) bool {
		return strings.HasPrefix(e, "ETCD_") || strings.HasPrefix(e, "KVNODE_")
	})
}

// Wipe removes what the member has stored. It may not run.
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

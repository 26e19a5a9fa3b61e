package e2e

import (
	"bytes"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// quiet is how long a script waits for a line.
const quiet = patience

// running is an etcdctl in the background.
type running struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended

	mu struct {
		sync.Mutex
		out []byte // not read yet
	}
}

// Write collects what the process prints.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.out = append(r.mu.out, p...)
	return len(p), nil
}

// take returns n lines, without those of the client's log, or all if n < 0. It
// reports whether there were as many.
func (r *running) take(n int) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken strings.Builder
	rest := r.mu.out
	for n != 0 {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		if !bytes.HasPrefix(rest, []byte(`{"level"`)) {
			taken.Write(rest[:i+1])
			n--
		}
		rest = rest[i+1:]
	}
	if n > 0 {
		return taken.String() + string(rest), false
	}
	r.mu.out = rest
	return taken.String(), true
}

// begin starts etcdctl with the line of the input:
//
//	begin NAME [endpoints=(m1)]
//
// Further directives read what it prints, tell it lines and interrupt it.
func (s *ctlScript) begin(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	r := &running{cmd: exec.Command(s.ctl, s.args(s.endpoints(t, d), strings.Fields(d.Input))...), done: make(chan struct{})}
	r.cmd.Dir = s.dir
	r.cmd.Stdout, r.cmd.Stderr = r, r
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // for its exit code
	}()
	s.running[name(t, d)] = r
	return "ok\n"
}

func (s *ctlScript) background(t *testing.T, d *datadriven.TestData) *running {
	t.Helper()
	r, ok := s.running[name(t, d)]
	if !ok {
		d.Fatalf(t, "nothing runs as %q", name(t, d))
	}
	return r
}

// tell writes the input to the standard input of one that runs:
//
//	tell NAME
func (s *ctlScript) tell(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if _, err := io.WriteString(s.background(t, d).stdin, d.Input+"\n"); err != nil {
		t.Fatal(err)
	}
	return "ok\n"
}

// read waits until one that runs has printed so many more lines, or has ended:
//
//	read NAME lines=3
//	read NAME end
func (s *ctlScript) read(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	r := s.background(t, d)
	if d.HasArg("end") {
		return s.end(t, r)
	}
	arg, _ := d.Arg("lines")
	n, err := strconv.Atoi(strings.Join(arg.Vals, ""))
	if err != nil {
		d.Fatalf(t, "lines: %v", err)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		text, ok := r.take(n)
		if ok {
			return s.names.normalise(text)
		}
		if time.Since(begin) > quiet {
			return s.names.normalise(text) + "(no more lines)\n"
		}
	}
}

// interrupt sends SIGINT to one that runs and waits for its end:
//
//	interrupt NAME
func (s *ctlScript) interrupt(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	r := s.background(t, d)
	_ = r.cmd.Process.Signal(syscall.SIGINT) // if it has ended, its exit code tells
	return s.end(t, r)
}

// end waits for the end of a process and returns what was not read.
func (s *ctlScript) end(t *testing.T, r *running) string {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(commandTimeout):
		return "(does not end)\n"
	}
	text, _ := r.take(-1)
	return s.names.normalise(text) + "(exit code " + strconv.Itoa(r.cmd.ProcessState.ExitCode()) + ")\n"
}

// stopAll ends what a script has left running.
func (s *ctlScript) stopAll(t *testing.T) {
	t.Helper()
	for _, r := range s.running {
		_ = r.cmd.Process.Kill() // it may have ended
		<-r.done
	}
}

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/testcluster"
)

// The leader's standard error is a pipe that is full, and both followers are stopped for 0.9 s,
// so that the leader has something to log. The cluster serves all the same, at each member. Then
// another member is killed, and the two that are left serve.
func TestAFullPipeForALogStopsNoMember(t *testing.T) {
	p := onlyKvnode(t)
	c := newCluster(t, testcluster.Config{Program: p, Flags: []string{electsSoon, "--log-outputs=stdout,stderr"}})
	pipes := map[*testcluster.Member]*os.File{}
	for _, m := range c.Members() {
		pipe := filepath.Join(filepath.Dir(m.Dir), m.Name+".stderr")
		must(t, syscall.Mkfifo(pipe, 0o600))
		f, err := os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		pipes[m] = f
		m.Program.Path, m.Program.Args = "/bin/sh", slices.Concat([]string{"-c", `exec "$@" 2>"$0"`, pipe, p.Path}, p.Args)
	}
	must(t, c.Serve(deadline(t)))
	blocked, err := c.Leader(deadline(t))
	must(t, err)
	fillPipe(t, pipes[blocked])
	var others []*testcluster.Member
	for _, m := range c.Members() {
		if m != blocked {
			others = append(others, m)
			must(t, m.Pause())
		}
	}
	time.Sleep(900 * time.Millisecond) // shorter than an election timeout, longer than a promise
	for _, m := range others {
		must(t, m.Resume())
	}
	servesAt(t, c.Members()...)
	must(t, others[0].Kill())
	servesAt(t, blocked, others[1])
}

// fillPipe writes to a pipe until it is full.
func fillPipe(t *testing.T, pipe *os.File) {
	t.Helper()
	conn, err := pipe.SyscallConn()
	must(t, err)
	line := make([]byte, 1) // or room for a short line would be left
	err = nil
	must(t, conn.Control(func(fd uintptr) {
		for err == nil {
			_, err = syscall.Write(int(fd), line)
		}
	}))
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("fill the pipe: %v, want %v", err, syscall.EAGAIN)
	}
}

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

// unheard are flags of members that learn of a death from death notices alone.
var unheard = []string{"--suspect-on-close=false", "--suspect-on-silence=false"}

// guarded starts three members with supervisors, with TLS between them if secure is set.
func guarded(t *testing.T, secure bool, flags ...string) (*testcluster.Cluster, *testcluster.Member) {
	t.Helper()
	return guardedBy(t, onlyKvnode(t), secure, flags...)
}

func guardedBy(t *testing.T, p testcluster.Program, secure bool, flags ...string) (*testcluster.Cluster, *testcluster.Member) {
	t.Helper()
	p.Args, p.Supervised = append(p.Args, "--guardian"), true // --supervise, by the name that former versions know
	c := newCluster(t, testcluster.Config{Program: p, AutoTLS: secure, Flags: append([]string{electsLate}, flags...)})
	must(t, c.Serve(deadline(t)))
	leader, err := c.Leader(deadline(t))
	must(t, err)
	return c, leader
}

// follows waits until another member leads and serves.
func follows(t *testing.T, c *testcluster.Cluster, old *testcluster.Member) {
	t.Helper()
	next, err := c.Leader(deadline(t))
	must(t, err)
	if next == old {
		t.Fatalf("%s leads still", old.Name)
	}
	must(t, next.Use(func(cl *clientv3.Client) error {
		_, err := cl.Get(deadline(t), "k")
		return err
	}))
}

// ledByDeathNotice expects the next leader to report that a death notice started its election. It does
// not check this with TLS.
func ledByDeathNotice(t *testing.T, c *testcluster.Cluster, secure bool) {
	t.Helper()
	next, err := c.Leader(deadline(t))
	must(t, err)
	if last := statusOf(deadline(t), next).Suspicions.Last; !secure && (last == nil || last.Cause != "obituary") {
		t.Errorf("the last fail-over of %s is %+v, want one by a death notice", next.Name, last)
	}
}

// A killed member is replaced at once, although only its supervisor can report its death: the election
// timeout is five seconds. The supervisor then exits as its member did.
func TestASupervisorReportsTheDeath(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run("tls="+strconv.FormatBool(secure), func(t *testing.T) {
			c, leader := guarded(t, secure, unheard...)
			before := time.Now()
			must(t, leader.KillChild())
			follows(t, c, leader)
			t.Logf("another leads after %v", time.Since(before))
			ledByDeathNotice(t, c, secure)
			if code, err := leader.WaitExit(deadline(t)); code != -1 || err != nil {
				t.Errorf("the supervisor ends with %d, %v, want a signal", code, err)
			}
			told := 0
			for _, m := range c.Members() {
				if m != leader {
					told += strings.Count(m.Log(), `"promise_void":true`)
				}
			}
			if told == 0 {
				t.Error("no promise was void")
			}
			must(t, leader.Start()) // as systemd would
			must(t, leader.WaitReady(deadline(t)))
		})
	}
}

// A supervisor that is told to stop stops the member in order. While it waits it has released the
// memory that it needed to start.
func TestASupervisorForwardsAStop(t *testing.T) {
	c, leader := guarded(t, false, unheard...)
	if resident, err := memoryOf(leader, "VmRSS"); err != nil || resident > 15<<20 {
		t.Errorf("the supervisor has %.1f MiB resident, %v, want 15 at most", float64(resident)/(1<<20), err)
	}
	code, err := leader.Terminate(deadline(t))
	if code != 0 || err != nil {
		t.Errorf("the supervisor ends with %d, %v, want 0", code, err)
	}
	follows(t, c, leader)
}

// If a supervisor dies with its member, no death notice is sent: the other members see the closed
// connections and wait until their promises expire, as without supervisors.
func TestASupervisorDiesWithItsMember(t *testing.T) {
	c, leader := guarded(t, false)
	child, err := leader.MemberProcess()
	must(t, err)
	before := time.Now()
	must(t, leader.Kill())
	_ = child.Kill() // or it has died with it
	follows(t, c, leader)
	t.Logf("another leads after %v", time.Since(before))
	next, err := c.Leader(deadline(t))
	must(t, err)
	last := statusOf(deadline(t), next).Suspicions.Last
	if last == nil || last.Cause != "hint" && last.Cause != "pre-vote" {
		t.Errorf("the last fail-over of %s is %+v, want one by ended connections", next.Name, last)
	}
	for _, m := range c.Members() {
		if strings.Contains(m.Log(), `"promise_void"`) {
			t.Errorf("%s has been told of a death", m.Name)
		}
	}
}

// If a supervisor is killed, its member dies with it.
func TestNoMemberOutlivesItsSupervisor(t *testing.T) {
	_, leader := guarded(t, false, unheard...)
	child, err := leader.MemberProcess()
	must(t, err)
	must(t, leader.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for child.Signal(syscall.Signal(0)) == nil {
		if ctx.Err() != nil {
			t.Fatal("the member lives")
		}
		time.Sleep(time.Millisecond)
	}
}

// A supervisor that got a socket from its parent, and logs to a pipe, ends as its member did, even if
// the parent is silent and does not read the pipe.
func TestASupervisorWithASocketAndAPipe(t *testing.T) {
	for _, killed := range []bool{false, true} {
		p, dir := onlyKvnode(t), t.TempDir()
		sockets, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		must(t, err)
		own, given := os.NewFile(uintptr(sockets[0]), "own"), os.NewFile(uintptr(sockets[1]), "given")
		t.Cleanup(func() { _ = own.Close() })
		pipe := filepath.Join(dir, "pipe")
		must(t, syscall.Mkfifo(pipe, 0o600))
		reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		must(t, err)
		client := freeAddr(t)
		cmd := exec.CommandContext(t.Context(), p.Path, append(p.Args, "--supervise", "--data-dir", filepath.Join(dir, "data"), "--log-outputs", pipe,
			"--listen-client-urls", "http://"+client, "--listen-peer-urls", "http://"+freeAddr(t))...)
		cmd.ExtraFiles = []*os.File{given}
		must(t, cmd.Start())
		must(t, given.Close())
		for ctx := deadline(t); ; time.Sleep(10 * time.Millisecond) {
			if conn, err := new(net.Dialer).DialContext(ctx, "tcp", client); err == nil {
				must(t, conn.Close())
				break
			}
			must(t, ctx.Err())
		}
		if killed {
			must(t, reader.Close())
			must(t, syscall.Kill(childOf(t, cmd.Process.Pid), syscall.SIGKILL))
		} else {
			must(t, cmd.Process.Signal(syscall.SIGTERM))
		}
		stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // the state says it
		if !stuck.Stop() {
			t.Errorf("killed: %v: the supervisor has not ended after %v", killed, patience)
		}
		_ = reader.Close()
		want := "exit status 0"
		if killed {
			want = "signal: killed"
		}
		if got := cmd.ProcessState.String(); got != want {
			t.Errorf("killed: %v: the supervisor ends with %s, want %s", killed, got, want)
		}
	}
}

// childOf returns the child process of a supervisor, which is a child of the thread that started it.
func childOf(t *testing.T, supervisor int) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", supervisor))
	must(t, err)
	var children []byte
	for _, file := range files {
		some, err := os.ReadFile(file)
		must(t, err)
		children = append(children, some...)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(children)))
	must(t, err)
	return child
}

// Members of a former version and of this one refuse each other's death notices, and replace a dead leader
// as without supervisors. Otherwise both versions work in one cluster:
//
//	go test -run TestSupervisorsOfTwoVersions . -args -former=/path/to/kvnode
func TestSupervisorsOfTwoVersions(t *testing.T) {
	if *formerFlag == "" {
		t.Skip("-former names no binary")
	}
	this := onlyKvnode(t)
	former := this
	former.Path = *formerFlag
	for name, programs := range map[string][2]testcluster.Program{"a former leader": {former, this}, "a new leader": {this, former}} {
		t.Run(name, func(t *testing.T) {
			c, leader := guardedBy(t, programs[0], false)
			for _, m := range c.Members() {
				if m != leader {
					m.Program.Path = programs[1].Path
					_, err := m.Terminate(deadline(t))
					must(t, err)
					must(t, m.Start())
					must(t, m.WaitReady(deadline(t)))
				}
			}
			if now, err := c.Leader(deadline(t)); err != nil || now != leader {
				t.Fatalf("%v leads, %v, want the member of the other version", now, err)
			}
			must(t, leader.KillChild())
			follows(t, c, leader)
			_, err := leader.WaitExit(deadline(t))
			must(t, err)
			n := strings.Count(leader.Log(), "a peer was not told that the member has died") // a former version's text
			if n += strings.Count(leader.Log(), "cannot notify a peer that the member has exited"); n != 2 {
				t.Errorf("%d log lines about a refused notice, want 2: %s", n, leader.LogTail())
			}
			for _, m := range c.Members() {
				if strings.Contains(m.Log(), `"promise_void":true`) {
					t.Errorf("%s has believed the notice of the other version", m.Name)
				}
			}
		})
	}
}

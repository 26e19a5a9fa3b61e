package supervisor

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// peerEnv is set in the supervisors and children of these tests: the address of their peer.
const peerEnv = "SUPERVISOR_TEST_PEER"

func init() { runAsHelper = runAsSupervisorOrChild }

func runAsSupervisorOrChild() {
	peer, ok := os.LookupEnv(peerEnv)
	if !ok {
		return
	}
	client, err := Connect()
	if client == nil && err == nil {
		runAsSupervisor()
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(9)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	client.SetPeers(transport.PeersToNotify{Hello: helloOf(1), Peers: []transport.PeerAddrs{{ID: 2, Addrs: []string{peer}}}})
	for written := false; !written; time.Sleep(time.Millisecond) {
		client.mu.Lock()
		written = client.mu.written != nil
		client.mu.Unlock()
	}
	id := client.ProcessID()
	_, open := unix.FcntlInt(inherited, unix.F_GETFD, 0)
	fmt.Println("child", os.Getpid(), hex.EncodeToString(id[:]), open != nil, os.Getenv("WATCHDOG_PID") == "")
	for {
		switch <-signals {
		case syscall.SIGTERM:
			os.Exit(3)
		default:
			if conn, ok := client.conn.(*net.UnixConn); ok {
				_ = conn.CloseWrite() // the supervisor sees a closed connection
			}
			fmt.Println("closed")
		}
	}
}

func runAsSupervisor() {
	_ = os.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	e, err := Run(os.Args[1:], os.Environ())
	if err != nil {
		fmt.Println("error", err)
		os.Exit(9)
	}
	e.notify(nil, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	code := 0
	if failed, ok := errors.AsType[*exec.ExitError](e.Repeat()); ok {
		code = failed.ExitCode()
	}
	os.Exit(code)
}

// supervised is a supervisor and its child.
type supervised struct {
	*notifiedPeer
	t       *testing.T
	cmd     *exec.Cmd
	stdout  *bufio.Reader // of both
	stderr  *os.File
	child   int
	process string
}

func start(t *testing.T, files ...*os.File) *supervised {
	t.Helper()
	return startLogging(t, nil, files...)
}

// startLogging is start with standard error set to stderr, if it is not nil.
func startLogging(t *testing.T, stderr *os.File, files ...*os.File) *supervised {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &supervised{t: t, notifiedPeer: &notifiedPeer{died: make(chan death, 9)}}
	links, err := transport.Start(transport.Config{Hello: helloOf(2), Listener: l, Handler: g.notifiedPeer})
	if err != nil {
		t.Fatal(err)
	}
	g.cmd = exec.Command("/proc/self/exe")
	g.cmd.Args[0] = "/some/where/kvnode"
	g.cmd.Env = append(os.Environ(), peerEnv+"="+l.Addr().String())
	if g.stderr, err = os.Create(filepath.Join(t.TempDir(), "stderr")); err != nil {
		t.Fatal(err)
	}
	g.cmd.ExtraFiles, g.cmd.Stderr = files, cmp.Or(stderr, g.stderr)
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait()
		_ = links.Close()
		_ = g.stderr.Close()
	})
	g.stdout = bufio.NewReader(out)
	return g
}

// startSupervised returns once the supervisor has the child's list of peers.
func startSupervised(t *testing.T) *supervised {
	t.Helper()
	g := start(t)
	g.awaitPeers()
	return g
}

// awaitPeers returns once the supervisor has the child's list of peers.
func (g *supervised) awaitPeers() {
	t := g.t
	t.Helper()
	var closed, unwatched bool
	if _, err := fmt.Fscanln(g.stdout, new(string), &g.child, &g.process, &closed, &unwatched); err != nil {
		t.Fatal(err, g.logs())
	}
	if len(g.process) != 32 || !closed || !unwatched {
		t.Errorf("process %s, socket closed: %v, no WATCHDOG_PID: %v; want a process ID, true, true", g.process, closed, unwatched)
	}
}

// The child gets the process ID and not the secret.
func TestGreetingHasNoSecret(t *testing.T) {
	secret, id := transport.Secret{7}, (&transport.Secret{7}).ProcessID()
	var sent bytes.Buffer
	if err := sendGreeting(&sent, &secret); err != nil || sent.String() != greeting+string(id[:]) {
		t.Errorf("sendGreeting() sends %q, %v, want %q and the ID only", sent.String(), err, greeting)
	}
}

// The child has the program's name, as without a supervisor.
func TestChildHasTheProgramsName(t *testing.T) {
	g := startSupervised(t)
	until(t, g.child, func(line string) bool { return line == "Name:\tkvnode" })
}

// wantExit waits for the supervisor's end.
func (g *supervised) wantExit(want string) {
	g.t.Helper()
	_, _ = io.Copy(io.Discard, g.stdout)
	_ = g.cmd.Wait()
	if got := g.cmd.ProcessState.String(); got != want {
		g.t.Errorf("the supervisor ends with %q, want %q: %s", got, want, g.logs())
	}
}

func (g *supervised) logs() string {
	text, _ := os.ReadFile(g.stderr.Name())
	return string(text)
}

// wantNotice waits for the death notice.
func (g *supervised) wantNotice() {
	g.t.Helper()
	select {
	case d := <-g.died:
		if d != (death{1, g.process}) {
			g.t.Errorf("notice for member %d, process %s, want 1, %s", d.member, d.process, g.process)
		}
	case <-time.After(time.Minute):
		g.t.Fatalf("no death notice for a minute: %s", g.logs())
	}
}

// wantNoNotice fails if there was a notice although the child is alive.
func (g *supervised) wantNoNotice() {
	g.t.Helper()
	select {
	case d := <-g.died:
		g.t.Errorf("notice for member %d, process %s, which is alive", d.member, d.process)
	default:
	}
}

func signalTo(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// until waits until is returns true for a line of /proc/pid/status.
func until(t *testing.T, pid int, is func(line string) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(strings.Split(string(status), "\n"), is) {
			return
		}
	}
	t.Fatal("a minute has passed")
}

func TestKilledChild(t *testing.T) {
	g := startSupervised(t)
	signalTo(t, g.child, syscall.SIGKILL)
	g.wantNotice()
	g.wantExit("signal: killed")
}

// The supervisor notifies all peers even if the reader of its log has gone.
func TestLogWithoutReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	g := startLogging(t, w)
	_ = r.Close()
	g.awaitPeers()
	signalTo(t, g.child, syscall.SIGKILL)
	g.wantNotice()
	g.wantExit("signal: killed")
}

func TestSignalsAndExitCodes(t *testing.T) {
	g := startSupervised(t)
	signalTo(t, g.cmd.Process.Pid, syscall.SIGTERM)
	g.wantNotice()
	g.wantExit("exit status 3")
}

// A stopped child is not dead, even if a signal is forwarded to it meanwhile.
func TestStoppedChild(t *testing.T) {
	g := startSupervised(t)
	signalTo(t, g.child, syscall.SIGSTOP)
	until(t, g.child, func(line string) bool { return strings.HasPrefix(line, "State:") && strings.Contains(line, "T (") })
	signalTo(t, g.cmd.Process.Pid, syscall.SIGUSR1) // wakes the supervisor
	until(t, g.child, func(line string) bool {
		pending, ok := strings.CutPrefix(line, "ShdPnd:\t")
		n, err := strconv.ParseUint(pending, 16, 64)
		return ok && err == nil && n&(1<<(syscall.SIGUSR1-1)) != 0
	})
	g.wantNoNotice()
	signalTo(t, g.child, syscall.SIGKILL)
	g.wantNotice()
	g.wantExit("signal: killed")
}

// A child that has closed its half of the connection is not dead.
func TestClosedConnection(t *testing.T) {
	g := startSupervised(t)
	signalTo(t, g.cmd.Process.Pid, syscall.SIGUSR1)
	if line, err := g.stdout.ReadString('\n'); line != "closed\n" {
		t.Fatal(line, err)
	}
	g.wantNoNotice()
	signalTo(t, g.cmd.Process.Pid, syscall.SIGTERM)
	g.wantNotice()
	g.wantExit("exit status 3")
}

// The child dies with its supervisor, even a stopped one.
func TestChildDiesWithSupervisor(t *testing.T) {
	g := startSupervised(t)
	signalTo(t, g.child, syscall.SIGSTOP)
	signalTo(t, g.cmd.Process.Pid, syscall.SIGKILL)
	_, _ = io.Copy(io.Discard, g.stdout) // until the child has closed it
	_ = g.cmd.Wait()
	g.wantNoNotice()
}

// Connect ignores files and sockets that the process inherited for another purpose.
func TestOtherInheritedFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	g := start(t, r)
	if line, _ := g.stdout.ReadString('\n'); !strings.HasPrefix(line, "child ") {
		t.Errorf("a process that inherited a pipe writes %q, want it to run a child", line)
	}
	own, childs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer childs.Close()
	if _, err := own.Write(bytes.Repeat([]byte("x"), 99)); err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	g = start(t, childs)
	if line, _ := g.stdout.ReadString('\n'); !strings.HasPrefix(line, "child ") {
		t.Errorf("a process that inherited another socket of its parent writes %q, want it to run a child", line)
	}
}

func TestIsDead(t *testing.T) {
	for _, script := range []string{"exit 0", "exit 1", "kill -9 $$"} {
		cmd := exec.Command("sh", "-c", script)
		_ = cmd.Run()
		if s := cmd.ProcessState; !isDead(s, s.Pid()) || isDead(s, s.Pid()+1) {
			t.Errorf("isDead() after %s = %v, of another process %v, want true and false", script, isDead(s, s.Pid()), isDead(s, s.Pid()+1))
		}
	}
	if isDead(nil, 0) {
		t.Error("isDead() without a state = true")
	}
}

func helloOf(id uint64) transport.Hello { return transport.Hello{ClusterID: 0xc1, From: id} }

// death is an accepted notice. The process ID is in hexadecimal digits.
type death struct {
	member  uint64
	process string
}

// notifiedPeer is member 2, which gets the notices.
type notifiedPeer struct {
	transport.Handler
	died chan death
}

func (*notifiedPeer) Admit(transport.Hello) error { return nil }
func (m *notifiedPeer) Died(peer uint64, process transport.ProcessID) {
	m.died <- death{peer, hex.EncodeToString(process[:])}
}
func (*notifiedPeer) Connected(uint64, transport.Hello) {}

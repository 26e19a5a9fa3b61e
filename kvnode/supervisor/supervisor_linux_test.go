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

// peerEnv is set in the guardians and children of these tests: the address of their peer.
const peerEnv = "GUARDIAN_TEST_PEER"

// be is a guardian, or the child of one, if this process is not that of the tests.
func be() {
	peer, ok := os.LookupEnv(peerEnv)
	if !ok {
		return
	}
	ward, err := Inherit()
	if ward == nil && err == nil {
		beGuardian()
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(9)
	}
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGTERM, syscall.SIGUSR1)
	ward.Entrust(transport.Will{Hello: helloOf(1), Peers: []transport.Addressee{{ID: 2, Addrs: []string{peer}}}})
	for written := false; !written; time.Sleep(time.Millisecond) {
		ward.mu.Lock()
		written = ward.mu.written != nil
		ward.mu.Unlock()
	}
	id := ward.ProcessID()
	_, open := unix.FcntlInt(inherited, unix.F_GETFD, 0)
	fmt.Println("child", os.Getpid(), hex.EncodeToString(id[:]), open != nil, os.Getenv("WATCHDOG_PID") == "")
	for {
		switch <-heard {
		case syscall.SIGTERM:
			os.Exit(3)
		default:
			if conn, ok := ward.conn.(*net.UnixConn); ok {
				_ = conn.CloseWrite() // as far as the guardian can see it
			}
			fmt.Println("closed")
		}
	}
}

func beGuardian() {
	_ = os.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	d, err := Guard(os.Args[1:], os.Environ())
	if err != nil {
		fmt.Println("error", err)
		os.Exit(9)
	}
	d.Tell(nil, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	code := 0
	if ended, ok := errors.AsType[*exec.ExitError](d.End()); ok {
		code = ended.ExitCode()
	}
	os.Exit(code)
}

// guarded is a guardian and its child.
type guarded struct {
	*mourner
	t       *testing.T
	cmd     *exec.Cmd
	says    *bufio.Reader
	stderr  *os.File
	child   int
	process string
}

func start(t *testing.T, files ...*os.File) *guarded {
	t.Helper()
	return startLogging(t, nil, files...)
}

// startLogging has them log to stderr, if it is not nil.
func startLogging(t *testing.T, stderr *os.File, files ...*os.File) *guarded {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{t: t, mourner: &mourner{died: make(chan death, 9)}}
	links, err := transport.Start(transport.Config{Hello: helloOf(2), Listener: l, Handler: g.mourner})
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
	g.says = bufio.NewReader(out)
	return g
}

// startGuarded returns once the child has made its will.
func startGuarded(t *testing.T) *guarded {
	t.Helper()
	g := start(t)
	g.hasWill()
	return g
}

// hasWill returns once the child has made its will.
func (g *guarded) hasWill() {
	t := g.t
	t.Helper()
	var closed, alone bool
	if _, err := fmt.Fscanln(g.says, new(string), &g.child, &g.process, &closed, &alone); err != nil {
		t.Fatal(err, g.said())
	}
	if len(g.process) != 32 || !closed || !alone {
		t.Errorf("process %s, closed %v, WATCHDOG_PID left out %v; want a process, whose own children inherit no guardian, and no watchdog of its parent's", g.process, closed, alone)
	}
}

// The child learns the ID that the secret hashes to, and not the secret.
func TestTheChildDoesNotLearnTheSecret(t *testing.T) {
	secret, id := transport.Secret{7}, (&transport.Secret{7}).ProcessID()
	var given bytes.Buffer
	if err := greet(&given, &secret); err != nil || given.String() != greeting+string(id[:]) {
		t.Errorf("greet() gives %q, %v, want %q and the ID alone", given.String(), err, greeting)
	}
}

// A member is found by its program's name, as without a guardian.
func TestAMemberHasItsName(t *testing.T) {
	g := startGuarded(t)
	until(t, g.child, func(line string) bool { return line == "Name:\tkvnode" })
}

// ends waits for the guardian.
func (g *guarded) ends(want string) {
	g.t.Helper()
	_, _ = io.Copy(io.Discard, g.says)
	_ = g.cmd.Wait()
	if got := g.cmd.ProcessState.String(); got != want {
		g.t.Errorf("the guardian ends with %q, want %q: %s", got, want, g.said())
	}
}

// said is what they have logged.
func (g *guarded) said() string {
	text, _ := os.ReadFile(g.stderr.Name())
	return string(text)
}

// dies waits for the obituary.
func (g *guarded) dies() {
	g.t.Helper()
	select {
	case d := <-g.died:
		if d != (death{1, g.process}) {
			g.t.Errorf("member %d, process %s has died, want 1, %s: the secret is not that of the child", d.member, d.process, g.process)
		}
	case <-time.After(time.Minute):
		g.t.Fatalf("a minute has passed, want an obituary: %s", g.said())
	}
}

func (g *guarded) lives() {
	g.t.Helper()
	select {
	case d := <-g.died:
		g.t.Errorf("member %d, process %s is said to be dead, which is alive", d.member, d.process)
	default:
	}
}

func signalTo(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// until waits until a line of /proc/pid/status is so.
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

func TestAKilledChildIsToldOf(t *testing.T) {
	g := startGuarded(t)
	signalTo(t, g.child, syscall.SIGKILL)
	g.dies()
	g.ends("signal: killed")
}

// A guardian whose log has lost its reader does not end before all peers are told.
func TestALogWithoutReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	g := startLogging(t, w)
	_ = r.Close()
	g.hasWill()
	signalTo(t, g.child, syscall.SIGKILL)
	g.dies()
	g.ends("signal: killed")
}

func TestSignalsAndExitCodesArePassedOn(t *testing.T) {
	g := startGuarded(t)
	signalTo(t, g.cmd.Process.Pid, syscall.SIGTERM)
	g.dies()
	g.ends("exit status 3")
}

// A child that is stopped is not dead, whatever else happens meanwhile.
func TestAStoppedChildIsNotToldOf(t *testing.T) {
	g := startGuarded(t)
	signalTo(t, g.child, syscall.SIGSTOP)
	until(t, g.child, func(line string) bool { return strings.HasPrefix(line, "State:") && strings.Contains(line, "T (") })
	signalTo(t, g.cmd.Process.Pid, syscall.SIGUSR1) // the guardian turns once more
	until(t, g.child, func(line string) bool {
		pending, ok := strings.CutPrefix(line, "ShdPnd:\t")
		n, err := strconv.ParseUint(pending, 16, 64)
		return ok && err == nil && n&(1<<(syscall.SIGUSR1-1)) != 0
	})
	g.lives()
	signalTo(t, g.child, syscall.SIGKILL)
	g.dies()
	g.ends("signal: killed")
}

// Nor is one that has ended its half of the connection.
func TestAClosedPipeIsNoDeath(t *testing.T) {
	g := startGuarded(t)
	signalTo(t, g.cmd.Process.Pid, syscall.SIGUSR1)
	if line, err := g.says.ReadString('\n'); line != "closed\n" {
		t.Fatal(line, err)
	}
	g.lives()
	signalTo(t, g.cmd.Process.Pid, syscall.SIGTERM)
	g.dies()
	g.ends("exit status 3")
}

// Who waits for a child that has no guardian any more?
func TestAGuardianTakesItsChildAlong(t *testing.T) {
	g := startGuarded(t)
	signalTo(t, g.child, syscall.SIGSTOP) // also if it cannot see that
	signalTo(t, g.cmd.Process.Pid, syscall.SIGKILL)
	_, _ = io.Copy(io.Discard, g.says) // until the child has closed it
	_ = g.cmd.Wait()
	g.lives()
}

// Nothing else that a process inherits is a guardian.
func TestOtherFilesAreNoGuardian(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	g := start(t, r)
	if line, _ := g.says.ReadString('\n'); !strings.HasPrefix(line, "child ") {
		t.Errorf("a process that has inherited a pipe says %q, want it to be a guardian", line)
	}
	own, childs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer childs.Close()
	if _, err := own.Write(bytes.Repeat([]byte("x"), 99)); err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	g = start(t, childs)
	if line, _ := g.says.ReadString('\n'); !strings.HasPrefix(line, "child ") {
		t.Errorf("a process that has inherited another socket of its parent's says %q, want it to be a guardian", line)
	}
}

// What is not known to be dead is alive.
func TestWhatIsDead(t *testing.T) {
	for _, script := range []string{"exit 0", "exit 1", "kill -9 $$"} {
		cmd := exec.Command("sh", "-c", script)
		_ = cmd.Run()
		if s := cmd.ProcessState; !isDead(s, s.Pid()) || isDead(s, s.Pid()+1) {
			t.Errorf("isDead() after %s = %v, of another process %v, want true and false", script, isDead(s, s.Pid()), isDead(s, s.Pid()+1))
		}
	}
	if isDead(nil, 0) {
		t.Error("isDead() of who could not be waited for = true")
	}
}

func helloOf(id uint64) transport.Hello { return transport.Hello{ClusterID: 0xc1, From: id} }

// death is a process of a member that has died, by its ID in hexadecimal digits.
type death struct {
	member  uint64
	process string
}

// mourner is member 2, which hears of deaths.
type mourner struct {
	transport.Handler
	died chan death
}

func (*mourner) Admit(transport.Hello) error { return nil }
func (m *mourner) Died(peer uint64, process transport.ProcessID) {
	m.died <- death{peer, hex.EncodeToString(process[:])}
}
func (*mourner) Connected(uint64, transport.Hello) {}

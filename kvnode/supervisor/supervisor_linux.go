package supervisor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// Supported reports whether this system reports the exit of a child reliably, and kills a child with its parent.
const Supported = true

// ErrNotDead means that the child may be alive.
var ErrNotDead = errors.New("supervisor: the system did not report that the child has exited")

// Run starts this program again, as a child with these arguments and this environment, and waits
// until it has exited. It forwards signals to the child. If the error is ErrNotDead, the child may
// be alive, and no peer may be notified.
//
// Linux kills the child when the thread that started it ends, even if the process goes on. So Run locks its goroutine
// to its thread forever.
func Run(args, environ []string) (*Exit, error) {
	runtime.LockOSThread()
	secret := transport.NewSecret()
	own, childs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	defer func() { _ = own.Close() }()
	if err := sendGreeting(own, &secret); err != nil {
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", args...)
	// The child answers systemd's watchdog. WATCHDOG_PID names this process, so the child must not get it.
	cmd.Args[0], cmd.Env = os.Args[0], without(environ, "WATCHDOG_PID="+strconv.Itoa(os.Getpid()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{childs} // file 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Notify before Start: a signal that arrives meanwhile is for the child, too.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded()...)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("supervisor: start the member: %w", err)
	}
	// Without this, a log line to a closed pipe ends the supervisor before it has notified all
	// peers. It comes after Start, because a child inherits ignored signals.
	signal.Ignore(syscall.SIGPIPE)
	_ = childs.Close() // so that a read from own ends when the child has exited
	go forward(signals, cmd.Process)
	peers := readPeers(own)
	freeMemory()
	_ = cmd.Wait() // ProcessState has the result
	if !isDead(cmd.ProcessState, cmd.Process.Pid) {
		return nil, ErrNotDead
	}
	return &Exit{secret: secret, State: cmd.ProcessState, peers: peers.last()}, nil
}

// sendGreeting sends the child its process ID, and not the secret.
func sendGreeting(child io.Writer, secret *transport.Secret) error {
	id := secret.ProcessID()
	_, err := child.Write(append([]byte(greeting), id[:]...))
	return err
}

// isDead reports whether the system has reported that this process has exited.
func isDead(s *os.ProcessState, pid int) bool {
	if s == nil || s.Pid() != pid {
		return false
	}
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && (w.Exited() || w.Signaled())
}

// socketPair returns the two ends of a connection, for this process and for the child.
func socketPair() (own net.Conn, childs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	file := os.NewFile(uintptr(fds[0]), "child")
	defer func() { _ = file.Close() }() // own has its own file
	childs = os.NewFile(uintptr(fds[1]), "supervisor")
	if own, err = net.FileConn(file); err != nil {
		_ = childs.Close()
	}
	return own, childs, err
}

func without(environ []string, variable string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return v == variable })
}

// forwarded returns the signals that Run forwards: those that a program can handle, without the
// ones that were ignored when this process started, for example by nohup.
func forwarded() []os.Signal {
	return slices.DeleteFunc([]os.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGUSR1, syscall.SIGUSR2,
	}, signal.Ignored)
}

func forward(signals <-chan os.Signal, to *os.Process) {
	for s := range signals {
		_ = to.Signal(s) // fails once the child has exited
	}
}

// Repeat ends this process as the child ended, if a signal killed the child. Else it returns the
// child's result: nil or an *exec.ExitError.
func (e *Exit) Repeat() error {
	w, _ := e.State.Sys().(syscall.WaitStatus)
	if !w.Signaled() {
		if e.State.Success() {
			return nil
		}
		return &exec.ExitError{ProcessState: e.State}
	}
	switch s := w.Signal(); s {
	case unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP:
		if os.Getpid() == 1 {
			break // Linux drops signals that the first process of a container sends to itself
		}
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
		time.Sleep(time.Second) // until it arrives
	}
	// The code that a shell reports. After other signals the runtime would write this process's stacks or a core file.
	os.Exit(128 + int(w.Signal()))
	return nil
}

// memoryLimit is far above what the lists of peers need. At this limit the garbage collector runs although freeMemory
// turns it off.
const memoryLimit = 32 << 20

// freeMemory returns the memory that the start needed. From now on this process only waits.
func freeMemory() {
	debug.SetGCPercent(-1) // each cycle, one in two minutes, would read the pages of the program
	debug.SetMemoryLimit(memoryLimit)
	debug.FreeOSMemory()
	freeProgramPages()
}

// freeProgramPages returns the pages of the program's file that the start has read, about 14 MB.
// The child shares them, so they are read again from memory. Pages that the loader has changed are
// kept.
func freeProgramPages() {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return // costs only memory
	}
	var m mapping
	for line := range strings.Lines(string(maps)) {
		if next, ok := parseMapping(line); ok {
			m = next
		} else if m.readOnlyFile && isUnchanged(line) {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
		}
	}
}

// mapping is a part of this process's address space.
type mapping struct {
	from, to     uintptr
	readOnlyFile bool
}

func parseMapping(line string) (m mapping, ok bool) {
	fields := strings.Fields(line) // from-to mode offset device inode file
	from, to, ok := strings.Cut(fields[0], "-")
	if !ok || len(fields) < 5 {
		return m, false
	}
	_, err := fmt.Sscanf(from+" "+to, "%x %x", &m.from, &m.to)
	m.readOnlyFile = fields[4] != "0" && !strings.Contains(fields[1], "w")
	return m, err == nil
}

// isUnchanged reports whether the line says that the mapping has no changed page.
func isUnchanged(line string) bool {
	fields := strings.Fields(line)
	return len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0"
}

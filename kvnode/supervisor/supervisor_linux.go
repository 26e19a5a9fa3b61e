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

// Supported says whether this system can tell for certain that a process is dead, and ends a child
// with its parent.
const Supported = true

// ErrNotDead says that it is not known whether the child is dead.
var ErrNotDead = errors.New("guardian: the child was not seen to die")

// Guard starts this program once more, with the arguments and the environment given, waits
// until it is dead, and returns its last will and how it ended. Signals to this process are
// passed on. The error is ErrNotDead if it may live; then nobody must be told that it is dead.
//
// The child ends with the thread that has started it, so Guard keeps its caller's for ever.
func Guard(args, environ []string) (*Death, error) {
	runtime.LockOSThread()
	secret := transport.NewSecret()
	own, childs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("guardian: %w", err)
	}
	defer func() { _ = own.Close() }()
	if err := greet(own, &secret); err != nil {
		return nil, fmt.Errorf("guardian: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0], cmd.Env = os.Args[0], without(environ, "WATCHDOG_PID="+strconv.Itoa(os.Getpid()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{childs} // file 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Before the child is started: whoever sends a signal means both.
	passed := make(chan os.Signal, 8)
	signal.Notify(passed, heeded()...)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guardian: start the member: %w", err)
	}
	// Or the first line of a log that has lost its reader ends this process, and other peers are not told.
	// Not earlier: a child inherits what is ignored.
	signal.Ignore(syscall.SIGPIPE)
	_ = childs.Close() // the child has its own, and the end of that is read here
	go pass(passed, cmd.Process)
	wills := readWills(own)
	rest()
	_ = cmd.Wait() // the state says it
	if !isDead(cmd.ProcessState, cmd.Process.Pid) {
		return nil, ErrNotDead
	}
	return &Death{secret: secret, State: cmd.ProcessState, Will: wills.last()}, nil
}

// greet tells the child the ID of its process, and nothing else about the secret.
func greet(child io.Writer, secret *transport.Secret) error {
	id := secret.ProcessID()
	_, err := child.Write(append([]byte(greeting), id[:]...))
	return err
}

// isDead reports whether the system has said that this very process has ended.
func isDead(s *os.ProcessState, pid int) bool {
	if s == nil || s.Pid() != pid {
		return false
	}
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && (w.Exited() || w.Signaled())
}

// pair returns this process's end of a connection, and the child's.
func pair() (own net.Conn, childs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	file := os.NewFile(uintptr(fds[0]), "ward")
	defer func() { _ = file.Close() }() // own has its own
	childs = os.NewFile(uintptr(fds[1]), "guardian")
	if own, err = net.FileConn(file); err != nil {
		_ = childs.Close()
	}
	return own, childs, err
}

// without leaves a variable out: the watchdog that systemd means for the process that it has started is
// the child's.
func without(environ []string, variable string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return v == variable })
}

// heeded are the signals that are passed on: what a process can be told, but not what was ignored
// from the start, as under nohup, or what ends it whatever it wants.
func heeded() []os.Signal {
	return slices.DeleteFunc([]os.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGUSR1, syscall.SIGUSR2,
	}, signal.Ignored)
}

func pass(signals <-chan os.Signal, to *os.Process) {
	for s := range signals {
		_ = to.Signal(s) // who is dead needs none
	}
}

// memory is when the collector runs all the same, in bytes: far above what the newest will takes.
const memory = 32 << 20

// rest gives back what the start took: from here on this process waits.
func rest() {
	debug.SetGCPercent(-1) // it would read the program's pages every two minutes
	debug.SetMemoryLimit(memory)
	debug.FreeOSMemory()
	forget()
}

// End ends this process as the child was, if that was by a signal that ends a process without a word.
// Otherwise it returns what the child ended with: nil, or an exec.ExitError.
func (d *Death) End() error {
	w, _ := d.State.Sys().(syscall.WaitStatus)
	if !w.Signaled() {
		if d.State.Success() {
			return nil
		}
		return &exec.ExitError{ProcessState: d.State}
	}
	switch s := w.Signal(); s {
	case unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP:
		if os.Getpid() == 1 {
			break // the first process of a container gets no signal that it sends itself
		}
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
		time.Sleep(time.Second) // it comes at once
	}
	os.Exit(128 + int(w.Signal())) // as shells say it: the runtime would write stacks, or a core, of this process
	return nil
}

// forget gives back the pages of the program that its start has read: 14 MB or so. They are the
// child's as well, and are read again from what it has of them in memory. What the loader has changed in them
// is no part of the file, and stays.
func forget() {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return // only room is lost
	}
	var file mapping
	for line := range strings.Lines(string(maps)) {
		if m, ok := parseMapping(line); ok {
			file = m
		} else if file.untouchable && unchanged(line) {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, file.from, file.to-file.from, unix.MADV_DONTNEED)
		}
	}
}

// mapping is a part of this process's memory.
type mapping struct {
	from, to uintptr
	// untouchable: it is of a file, and cannot be written.
	untouchable bool
}

func parseMapping(line string) (m mapping, ok bool) {
	fields := strings.Fields(line) // from-to mode offset device inode file
	from, to, ok := strings.Cut(fields[0], "-")
	if !ok || len(fields) < 5 {
		return m, false
	}
	_, err := fmt.Sscanf(from+" "+to, "%x %x", &m.from, &m.to)
	m.untouchable = fields[4] != "0" && !strings.Contains(fields[1], "w")
	return m, err == nil
}

// unchanged reports whether a line says that no page of a mapping differs from its file.
func unchanged(line string) bool {
	fields := strings.Fields(line)
	return len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0"
}

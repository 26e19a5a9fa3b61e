package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"
)

// privateEnv is set in a process that has mounts and networks of its own.
const privateEnv = "LEASEBENCH_PRIVATE"

// errNotPrivate: the system refuses this process mounts and networks of its own.
var errNotPrivate = errors.New("no mounts and networks of its own")

// private runs this program again, with the same arguments, as a process with mounts and
// networks of its own, which the kernel removes when that process ends. It returns done
// when it has ended. In the new process itself it returns at once.
func private(ctx context.Context) (done bool, err error) {
	if os.Getenv(privateEnv) != "" {
		return false, errors.Join(
			syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
			syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""), // where ip keeps names of networks
			ip("link", "set", "lo", "up"),
		)
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	// Some systems let every user start such a process, but refuse it all rights.
	trial := exec.CommandContext(ctx, "sh", "-c", "mount --make-rprivate / && mount -t tmpfs tmpfs /run && ip link set lo up")
	trial.SysProcAttr = namespaces()
	if out, err := trial.CombinedOutput(); err != nil {
		return false, fmt.Errorf("%w: %w: %s", errNotPrivate, err, bytes.TrimSpace(out))
	}
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), privateEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, time.Minute
	cmd.SysProcAttr = namespaces()
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("%w: %w", errNotPrivate, err)
	}
	return true, cmd.Wait()
}

// namespaces gives a process mounts and networks of its own. A user that is not root becomes
// root in a user namespace, which may make networks, but not mount disks.
func namespaces() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if id := os.Getuid(); id != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// ioctlShutDown is EXT4_IOC_SHUTDOWN. With the flag shutDownNow the file system writes
// nothing more, not even its journal.
const (
	ioctlShutDown = 0x8004587d
	shutDownNow   = 2
)

// shutDown makes the file system at dir fail.
func shutDown(dir string) (err error) {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	how := uint32(shutDownNow)
	if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ioctlShutDown, uintptr(unsafe.Pointer(&how))); no != 0 {
		return fmt.Errorf("let the file system at %s fail: %w", dir, no)
	}
	return nil
}

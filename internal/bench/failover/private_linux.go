package failover

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

// ErrNotPrivate says that this process may not have mounts and networks of its own.
var ErrNotPrivate = errors.New("deaths: no mounts and networks of its own")

// Private runs this program once more, with the same arguments, as a process with mounts
// and networks of its own: whatever becomes of it, nothing of them is left. It returns done
// when that has ended. In the new process itself it returns at once.
func Private(ctx context.Context) (done bool, err error) {
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
	// Some systems let anybody begin such a process, and it may do nothing then.
	trial := exec.CommandContext(ctx, "sh", "-c", "mount --make-rprivate / && mount -t tmpfs tmpfs /run && ip link set lo up")
	trial.SysProcAttr = private()
	if out, err := trial.CombinedOutput(); err != nil {
		return false, fmt.Errorf("%w: %w: %s", ErrNotPrivate, err, bytes.TrimSpace(out))
	}
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), privateEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, time.Minute
	cmd.SysProcAttr = private()
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("%w: %w", ErrNotPrivate, err)
	}
	return true, cmd.Wait()
}

// private makes a process with mounts and networks of its own. Unless it is root, it becomes
// so there, and may then have networks, and may not mount disks.
func private() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if id := os.Getuid(); id != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// ioctlShutDown is EXT4_IOC_SHUTDOWN, and shutDownNow its flag by which nothing more is
// written, not even the journal.
const (
	ioctlShutDown = 0x8004587d
	shutDownNow   = 2
)

// shutDown lets the file system at dir fail.
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

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// diskEnv makes the test binary hold a disk: its value is where that is mounted.
const diskEnv = "E2E_DISK"

// diskSize is the size of a small disk that is not full. A member of the chaos test never fills it. The
// disk is memory, and only written pages use any.
const diskSize = 4 << 30

// smallDisk is a disk of a member's own that can be full. It needs no privileges: another process
// mounts a tmpfs in namespaces of its own, and the test reaches it through that process.
type smallDisk struct {
	Dir string // where members find it

	in  io.WriteCloser
	out *bufio.Scanner
}

// newSmallDisk makes a disk that lasts as long as the test. It is nil, and the test
// says so, where the system allows neither a user namespace nor, to root, a mount.
func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	mapped := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
	d, err := holdSmallDisk(t, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: mapped(os.Getuid()), GidMappings: mapped(os.Getgid()),
	})
	if err != nil && os.Getuid() == 0 {
		var asRoot error
		d, asRoot = holdSmallDisk(t, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS})
		err = errors.Join(err, asRoot)
	}
	if d == nil {
		t.Logf("LEFT OUT: no disk becomes full, since this system allows no mount: %v", err)
	}
	return d
}

// holdSmallDisk starts the process that holds a disk.
func holdSmallDisk(t *testing.T, in *syscall.SysProcAttr) (*smallDisk, error) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	mount := t.TempDir()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), diskEnv+"="+mount)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = in
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &smallDisk{in: stdin, out: bufio.NewScanner(out)}
	if err := d.free(); err != nil {
		return nil, errors.Join(err, stdin.Close(), cmd.Wait())
	}
	t.Cleanup(func() { must(t, errors.Join(stdin.Close(), cmd.Wait())) })
	d.Dir = fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, mount)
	return d, nil
}

// fill leaves no byte free.
func (d *smallDisk) fill() error { return d.tell("full") }

// free makes room again.
func (d *smallDisk) free() error { return d.tell("free") }

func (d *smallDisk) tell(what string) error {
	if _, err := fmt.Fprintln(d.in, what); err != nil {
		return fmt.Errorf("make the disk %s: %w", what, err)
	}
	if !d.out.Scan() || d.out.Text() != "ok" {
		return fmt.Errorf("make the disk %s: %q, %w", what, d.out.Text(), d.out.Err())
	}
	return nil
}

// holdDisk mounts a disk and does to it what its standard input says.
func holdDisk(dir string) error {
	flags := uintptr(0)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); flags = syscall.MS_REMOUNT {
		size, err := uint64(diskSize), error(nil)
		if strings.TrimSpace(in.Text()) == "full" {
			size, err = inUse(dir)
		}
		if err == nil {
			err = syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%d", size))
		}
		if err != nil {
			return fmt.Errorf("disk at %s: %w", dir, err)
		}
		fmt.Println("ok")
	}
	return nil
}

// inUse is how much of the disk at dir is in use.
func inUse(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	err := syscall.Statfs(dir, &fs)
	return (fs.Blocks - fs.Bfree) * uint64(fs.Bsize), err
}

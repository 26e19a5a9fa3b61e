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

// diskSize is the size of a small disk that is not full: room for all that a member
// of the chaos test writes. It is memory, but only what is written is used.
const diskSize = 4 << 30

// smallDisk is a disk of a member's own that can be full. Anybody may have one: it is
// a tmpfs that another process mounts in namespaces of its own, and is reached by way
// of that process.
type smallDisk struct {
	Dir string // where members find it

	in  io.WriteCloser
	out *bufio.Scanner
}

// newSmallDisk makes a disk that lasts as long as the test.
func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	mount := t.TempDir()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), diskEnv+"="+mount)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	if err := cmd.Start(); err != nil {
		t.Fatalf("a disk that can be full is mounted in a user namespace, which the system must allow: %v", err)
	}
	d := &smallDisk{in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() { must(t, errors.Join(in.Close(), cmd.Wait())) })
	if err := d.free(); err != nil {
		t.Fatalf("mount a disk in a user namespace: %v", err)
	}
	d.Dir = fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, mount)
	return d
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

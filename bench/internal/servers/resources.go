package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leaderlease/go/internal/testcluster"
)

// Prepare finds out whether members can have what the deaths need. If deaths need
// something, it first runs this program again with mounts and networks of its own, and
// returns done once that has ended. cannot has the reason for each need that members
// cannot have.
func Prepare(ctx context.Context, all []Death) (cannot map[Needs]error, done bool, err error) {
	cannot = make(map[Needs]error)
	if !slices.ContainsFunc(all, func(d Death) bool { return d.Needs != "" }) {
		return cannot, false, nil
	}
	done, refused := private(ctx)
	if done || refused != nil && !errors.Is(refused, errNotPrivate) {
		return nil, done, refused
	}
	for _, d := range all {
		if d.Needs == "" {
			continue
		}
		if cannot[d.Needs] = refused; refused == nil {
			cannot[d.Needs] = try(d.Needs)
		}
	}
	return cannot, false, nil
}

// try prepares and restores the means of a death for one member.
func try(needs Needs) error {
	dir, err := os.MkdirTemp("", "leasebench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty by now
	switch needs {
	case Cables:
		w, err := newCables(0, 1)
		if err != nil {
			return err
		}
		return w.close()
	case Disks:
		d, err := newDisk(filepath.Join(dir, "image"), filepath.Join(dir, "disk"))
		if err != nil {
			return err
		}
		return d.close()
	default:
		return nil
	}
}

// cables are a bridge in this process's network, and a veth pair from it to each member,
// which has a network of its own. They need the right to make networks: see private.
type cables struct{ number, members int }

// newCables creates the bridge and all cables, plugged in.
func newCables(number, members int) (*cables, error) {
	w := &cables{number: number, members: members}
	err := ip("link", "add", w.bridge(), "type", "bridge")
	if err != nil {
		return nil, err
	}
	err = errors.Join(ip("addr", "add", w.address(254)+"/24", "dev", w.bridge()), ip("link", "set", w.bridge(), "up"))
	for i := range members {
		if err != nil {
			break
		}
		own := w.space(i)
		err = errors.Join(
			ip("netns", "add", own),
			ip("link", "add", w.port(i), "type", "veth", "peer", "name", "eth0", "netns", own),
			ip("link", "set", w.port(i), "master", w.bridge(), "up"),
			ip("-n", own, "addr", "add", w.address(i+1)+"/24", "dev", "eth0"),
			ip("-n", own, "link", "set", "eth0", "up"),
			ip("-n", own, "link", "set", "lo", "up"),
		)
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *cables) bridge() string       { return fmt.Sprintf("switch%d", w.number) }
func (w *cables) port(i int) string    { return fmt.Sprintf("cable%d-%d", w.number, i) }
func (w *cables) space(i int) string   { return fmt.Sprintf("member%d-%d", w.number, i) }
func (w *cables) address(n int) string { return fmt.Sprintf("10.77.%d.%d", w.number, n) }
func (w *cables) pull(i int) error     { return ip("link", "set", w.port(i), "down") }
func (w *cables) plug(i int) error     { return ip("link", "set", w.port(i), "up") }
func (w *cables) hosts() (all []string) { // of the members
	for i := range w.members {
		all = append(all, w.address(i+1))
	}
	return all
}

// program is p, run in the network of member i.
func (w *cables) program(i int, p testcluster.Program) testcluster.Program {
	return testcluster.Program{Name: p.Name, Path: "ip", Args: append([]string{"netns", "exec", w.space(i), p.Path}, p.Args...)}
}

func (w *cables) close() error {
	var errs []error
	for i := range w.members {
		_ = ip("netns", "del", w.space(i)) // it may not be there yet
	}
	return errors.Join(append(errs, ip("link", "del", w.bridge()))...)
}

func ip(args ...string) error { return command("ip", args...) }

// command runs a system program. An error includes its output.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// disk is an ext4 file system for one member, in a file. When it fails, each read, write and
// sync returns EIO, as for a disk that is gone. It needs root on Linux, and mkfs.ext4.
type disk struct {
	image, dir string
	failed     bool
}

// diskSize is the size of the file, which is sparse.
const diskSize = 1 << 30

// newDisk mounts a new file system at dir.
func newDisk(image, dir string) (*disk, error) {
	d := &disk{image: image, dir: dir}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return nil, err
	}
	err := os.Truncate(image, diskSize)
	if err == nil {
		err = command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
	}
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = command("mount", "-o", "loop", image, dir)
	}
	if err == nil {
		err = errors.Join(os.Remove(filepath.Join(dir, "lost+found")), os.Chmod(dir, 0o700))
	}
	if err != nil {
		return nil, fmt.Errorf("make a disk: %w", err)
	}
	return d, nil
}

// sync writes files that servers do not sync by themselves, such as their certificates.
func (d *disk) sync() error { return command("sync", "-f", d.dir) }

func (d *disk) fail() error {
	d.failed = true
	return shutDown(d.dir)
}

// repair mounts the file system again, with the data synced before.
func (d *disk) repair() error {
	err := errors.Join(command("umount", d.dir), command("mount", "-o", "loop", d.image, d.dir))
	d.failed = err != nil
	return err
}

func (d *disk) close() error { return errors.Join(command("umount", d.dir), os.Remove(d.image)) }

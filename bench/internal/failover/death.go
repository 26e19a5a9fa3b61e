// Package failover measures how long a cluster of processes answers no linearizable read
// and acknowledges no write after its leader has died, in several ways, as a client sees it
// that knows all members. The servers are kvnode, or any program that takes etcd's flags.
package failover

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
	"time"

	"github.com/leaderlease/go/internal/testcluster"
)

// Death is a way in which a leader dies.
type Death struct {
	Name  string
	Short string // on the command line
	// Needs is what the cluster must have.
	Needs Needs
	// Members is the size of the cluster, 0 for any.
	Members int
	// happen makes the leader die. ended, if set, returns once the leader's process has
	// ended as a consequence.
	happen, ended func(ctx context.Context, c *Cluster, leader int) error
	// undo brings the leader back, which is measured as well.
	undo     func(c *Cluster, leader int) error
	UndoName string
}

// Needs is a resource that each member must have for itself.
type Needs string

// The needs, besides none.
const (
	Cables Needs = "networks of their own"
	Disks  Needs = "disks of their own"
)

// All lists the ways in which a leader dies. Ways without requirements come first.
var All = []Death{
	{Name: "kill -9", Short: "kill", happen: kill},
	{Name: "panic", Short: "panic", happen: func(_ context.Context, c *Cluster, i int) error { return c.Members()[i].Crash() }},
	{Name: "SIGTERM", Short: "term", happen: terminate},
	{
		Name: "SIGSTOP", Short: "stop", happen: func(_ context.Context, c *Cluster, i int) error { return c.Members()[i].Pause() },
		UndoName: "SIGCONT of it", undo: func(c *Cluster, i int) error { return c.Members()[i].Resume() },
	},
	{
		Name: "cable pulled", Short: "cable", Needs: Cables, happen: func(_ context.Context, c *Cluster, i int) error { return c.cables.pull(i) },
		UndoName: "cable back in", undo: func(c *Cluster, i int) error { return c.cables.plug(i) },
	},
	{Name: "disk fails", Short: "disk", Needs: Disks, happen: func(_ context.Context, c *Cluster, i int) error { return c.disks[i].fail() }, ended: ended},
	{Name: "two of five", Short: "two", Members: 5, happen: killTwo},
}

// Shorts are the names for the command line.
func Shorts() (all []string) {
	for _, d := range All {
		all = append(all, d.Short)
	}
	return all
}

// Named returns the deaths with these names, in the order of All.
func Named(shorts []string) (all []Death, err error) {
	for _, s := range shorts {
		if !slices.Contains(Shorts(), s) {
			return nil, fmt.Errorf("death %q must be one of %v", s, Shorts())
		}
	}
	for _, d := range All {
		if slices.Contains(shorts, d.Short) {
			all = append(all, d)
		}
	}
	return all, nil
}

func kill(_ context.Context, c *Cluster, leader int) error { return c.Members()[leader].KillChild() }

// killTwo kills the leader and another member.
func killTwo(ctx context.Context, c *Cluster, leader int) error {
	other := make(chan error, 1)
	go func() { other <- kill(ctx, c, (leader+1)%len(c.Members())) }()
	err := kill(ctx, c, leader)
	if two := <-other; err == nil {
		err = two
	}
	return err
}

// endTimeout is how long a member may take to end after SIGTERM, or after its disk fails.
const endTimeout = 10 * time.Second

func terminate(ctx context.Context, c *Cluster, leader int) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, err := c.Members()[leader].Terminate(ctx)
	return err
}

// ended waits until the leader ends by itself.
func ended(ctx context.Context, c *Cluster, leader int) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, err := c.Members()[leader].WaitExit(ctx)
	return err
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

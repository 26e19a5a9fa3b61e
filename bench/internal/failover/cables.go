package failover

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/leaderlease/go/internal/testcluster"
)

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

// command runs a program of the system. An error has what it wrote.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

package failover

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/leaderlease/go/internal/procs"
)

// wires are a switch, which is this process's, and a cable from it to each member, which has
// a network of its own. It needs the right to make networks: see Private.
type wires struct{ number, members int }

// newWires plugs all cables in.
func newWires(number, members int) (*wires, error) {
	w := &wires{number: number, members: members}
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

func (w *wires) bridge() string       { return fmt.Sprintf("switch%d", w.number) }
func (w *wires) port(i int) string    { return fmt.Sprintf("cable%d-%d", w.number, i) }
func (w *wires) space(i int) string   { return fmt.Sprintf("member%d-%d", w.number, i) }
func (w *wires) address(n int) string { return fmt.Sprintf("10.77.%d.%d", w.number, n) }
func (w *wires) pull(i int) error     { return ip("link", "set", w.port(i), "down") }
func (w *wires) plug(i int) error     { return ip("link", "set", w.port(i), "up") }
func (w *wires) hosts() (all []string) { // of the members
	for i := range w.members {
		all = append(all, w.address(i+1))
	}
	return all
}

// program is p, run where member i is.
func (w *wires) program(i int, p procs.Program) procs.Program {
	return procs.Program{Name: p.Name, Path: "ip", Args: append([]string{"netns", "exec", w.space(i), p.Path}, p.Args...)}
}

func (w *wires) close() error {
	var errs []error
	for i := range w.members {
		_ = ip("netns", "del", w.space(i)) // it may not be there yet
	}
	return errors.Join(append(errs, ip("link", "del", w.bridge()))...)
}

func ip(args ...string) error { return command("ip", args...) }

// command runs a program of the system and says what it said.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

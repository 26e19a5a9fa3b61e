// Package memlink is a network in memory, with faults, for tests.
//
// It works inside testing/synctest bubbles: waiting on a connection is durably
// blocking, and delays and deadlines are in virtual time. Make the Network
// inside the bubble.
//
// A Network knows hosts by name: the host of a listener's address, and the host
// that a dialer names as its own. Faults are between two hosts, in one direction
// or both, and concern connections that exist and new ones alike:
//
//   - Cut holds sent bytes until Heal, as TCP does when packets are lost, and
//     neither side sees an error. Dialling hangs.
//   - Delay adds to the time that everything takes.
//   - Reset ends the connections that exist, with an error on both sides.
//   - Damage flips bits.
//
// A connection holds 256 KiB of unread bytes each way; then writing blocks.
package memlink

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Network connects hosts. All its methods are safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener // by address
	paths     map[route]*path
}

// route is one direction between two hosts.
type route struct{ from, to string }

// path is the state of a route.
type path struct {
	mu     sync.Mutex
	cut    bool
	delay  time.Duration
	damage func([]byte)
	healed chan struct{} // closed when cut ends
	pipes  map[*pipe]struct{}
}

// New returns a network without faults.
func New() *Network {
	return &Network{listeners: make(map[string]*listener), paths: make(map[route]*path)}
}

func (n *Network) path(from, to string) *path {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := route{from, to}
	p := n.paths[r]
	if p == nil {
		p = &path{healed: make(chan struct{}), pipes: make(map[*pipe]struct{})}
		n.paths[r] = p
	}
	return p
}

// Cut holds everything between a and b, both ways.
func (n *Network) Cut(a, b string) {
	n.CutOneWay(a, b)
	n.CutOneWay(b, a)
}

// CutOneWay holds everything from one host to another.
func (n *Network) CutOneWay(from, to string) {
	p := n.path(from, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
}

// Heal ends a cut between a and b, both ways. The held bytes arrive.
func (n *Network) Heal(a, b string) {
	n.path(a, b).heal()
	n.path(b, a).heal()
}

// HealAll ends all cuts.
func (n *Network) HealAll() {
	for _, p := range n.all() {
		p.heal()
	}
}

// Isolate cuts host off from every host with which it has communicated so far.
func (n *Network) Isolate(host string) {
	n.mu.Lock()
	var routes []route
	for r := range n.paths {
		if r.from == host || r.to == host {
			routes = append(routes, r)
		}
	}
	n.mu.Unlock()
	for _, r := range routes {
		n.Cut(r.from, r.to)
	}
}

func (n *Network) all() []*path {
	n.mu.Lock()
	defer n.mu.Unlock()
	paths := make([]*path, 0, len(n.paths))
	for _, p := range n.paths {
		paths = append(paths, p)
	}
	return paths
}

// Delay makes everything between a and b take d, one way and the other.
func (n *Network) Delay(a, b string, d time.Duration) {
	for _, p := range []*path{n.path(a, b), n.path(b, a)} {
		p.mu.Lock()
		p.delay = d
		p.mu.Unlock()
	}
}

// Damage calls f with all bytes on their way from one host to another, so that f can change
// them; nil ends it. The writing goroutines call f.
func (n *Network) Damage(from, to string, f func([]byte)) {
	p := n.path(from, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.damage = f
}

// Reset ends all connections between a and b, even while they are cut. Connections dialled
// afterwards are not affected.
func (n *Network) Reset(a, b string) {
	for _, q := range append(n.path(a, b).live(), n.path(b, a).live()...) {
		q.reset()
	}
}

// Connections returns how many connections between a and b are open.
func (n *Network) Connections(a, b string) int { return len(n.path(a, b).live()) }

func (p *path) live() []*pipe {
	p.mu.Lock()
	defer p.mu.Unlock()
	pipes := make([]*pipe, 0, len(p.pipes))
	for q := range p.pipes {
		pipes = append(pipes, q)
	}
	return pipes
}

func (p *path) heal() {
	p.mu.Lock()
	if p.cut {
		p.cut = false
		close(p.healed)
		p.healed = make(chan struct{})
	}
	p.mu.Unlock()
	for _, q := range p.live() {
		q.wakeUp()
	}
}

// state returns the faults that apply to a packet now.
func (p *path) state() (cut bool, delay time.Duration, damage func([]byte), healed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut, p.delay, p.damage, p.healed
}

func (p *path) held() bool {
	cut, _, _, _ := p.state()
	return cut
}

// cross waits for the travel time of a packet.
func (p *path) cross(ctx context.Context) error {
	for {
		cut, delay, _, healed := p.state()
		if !cut {
			return pass(ctx, delay)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-healed:
		}
	}
}

// pass waits for d.
func pass(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Dialer returns a function that dials from host.
func (n *Network) Dialer(host string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) { return n.Dial(ctx, host, addr) }
}

// Dial connects from a host to an address. While a cut is in the way it hangs until
// ctx ends. Without a listener it is refused.
func (n *Network) Dial(ctx context.Context, from, addr string) (net.Conn, error) {
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	there, back := n.path(from, to), n.path(to, from)
	for _, p := range []*path{there, back} {
		if err := p.cross(ctx); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Addr: address(addr), Err: err}
		}
	}
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: address(addr), Err: errRefused}
	}
	local, remote := connect(there, back, address(from), address(addr))
	if !l.offer(remote) {
		local.abort()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: address(addr), Err: errRefused}
	}
	return local, nil
}

// Listen listens at an address, host:port. Port 0 takes a free one.
func (n *Network) Listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for free := 1; port == "0"; free++ {
		if a := net.JoinHostPort(host, fmt.Sprint(free)); n.listeners[a] == nil {
			addr, port = a, fmt.Sprint(free)
		}
	}
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: address(addr), Err: errInUse}
	}
	l := &listener{n: n, addr: address(addr), queue: make(chan *conn, backlog), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

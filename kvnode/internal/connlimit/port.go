package connlimit

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Config configures a Port.
type Config struct {
	// Name names the port in log lines.
	Name string
	// MaxPending limits the connections that are not authenticated, MaxOpen all
	// connections. MaxOpen 0 means no limit.
	MaxPending, MaxOpen int
	// Logger gets a line at most once in ten seconds while connections are evicted or rejected.
	Logger *slog.Logger
}

// Port limits the connections to one port, which may have several listeners. Its
// methods are safe for concurrent use.
type Port struct {
	cfg  Config // immutable
	warn rate.Sometimes

	mu struct {
		sync.Mutex
		pending           map[*Pending]struct{}
		perHost           map[string]int // pending connections
		open              int
		evicted, rejected uint64
	}
}

// Stats counts the connections of a Port.
type Stats struct {
	// Pending connections are not authenticated. Open are all connections.
	Pending, Open int
	// Evicted connections were closed for a new one, Rejected ones at once.
	Evicted, Rejected uint64
}

// New returns a Port without connections.
func New(cfg Config) *Port {
	p := &Port{cfg: cfg, warn: rate.Sometimes{First: 1, Interval: 10 * time.Second}}
	p.mu.pending, p.mu.perHost = make(map[*Pending]struct{}), make(map[string]int)
	return p
}

// Pending is a connection of a Port, also after it has authenticated. Its methods may be called in any order, also on
// nil, which stands for a connection of no Port.
type Pending struct {
	port *Port // immutable, as this block
	conn net.Conn
	host string

	// The port's lock guards these.
	progress time.Time // when it was accepted, or last made progress
	state    state
}

type state int

const (
	isPending state = iota
	isAuthenticated
	isClosed
)

// Admit counts c as pending. It may evict another connection. It returns false if it
// has closed c.
func (p *Port) Admit(c net.Conn) (*Pending, bool) {
	n := &Pending{port: p, conn: rawConn(c), host: hostOf(c.RemoteAddr()), progress: time.Now()}
	victim := p.admit(n)
	if victim != nil {
		_ = victim.conn.Close() // an error means that it is closed
		p.warn.Do(func() {
			s := p.Stats()
			p.cfg.Logger.Warn("connections that do not authenticate are closed: there are too many", "port", p.cfg.Name, "host", victim.host,
				"pending", s.Pending, "open", s.Open, "max_open", p.cfg.MaxOpen, "evicted", s.Evicted, "rejected", s.Rejected)
		})
	}
	return n, victim != n
}

// admit returns the connection that is to be closed: nil, another one, or n.
func (p *Port) admit(n *Pending) (victim *Pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.pending) >= p.cfg.MaxPending || p.cfg.MaxOpen > 0 && p.mu.open >= p.cfg.MaxOpen {
		if victim = p.victimLocked(n.host); victim == nil {
			n.state = isClosed
			p.mu.rejected++
			return n
		}
		p.mu.evicted++
		victim.closeLocked()
	}
	p.mu.open++
	p.mu.pending[n] = struct{}{}
	p.mu.perHost[n.host]++
	return victim
}

// victimLocked returns the pending connection that a new one from host evicts, nil if
// there is none.
func (p *Port) victimLocked(host string) (victim *Pending) {
	heaviest := host // unless another host has more pending connections
	for h, n := range p.mu.perHost {
		if n > p.mu.perHost[heaviest] {
			heaviest = h
		}
	}
	for n := range p.mu.pending {
		if n.host == heaviest && (victim == nil || n.progress.Before(victim.progress)) {
			victim = n
		}
	}
	return victim
}

// Stats returns the counts as of now.
func (p *Port) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Pending: len(p.mu.pending), Open: p.mu.open, Evicted: p.mu.evicted, Rejected: p.mu.rejected}
}

// Progress notes that the client has come further, for example in its handshake.
func (n *Pending) Progress() {
	if n == nil {
		return
	}
	n.port.mu.Lock()
	defer n.port.mu.Unlock()
	n.progress = time.Now()
}

// Authenticated notes that the client has authenticated, so that the connection is no longer evicted. It returns
// false if the connection was evicted or released before.
func (n *Pending) Authenticated() bool {
	if n == nil {
		return true
	}
	n.port.mu.Lock()
	defer n.port.mu.Unlock()
	if n.state == isPending {
		n.forgetLocked()
		n.state = isAuthenticated
	}
	return n.state == isAuthenticated
}

// Release is called when the connection is closed.
func (n *Pending) Release() {
	if n == nil {
		return
	}
	n.port.mu.Lock()
	defer n.port.mu.Unlock()
	n.closeLocked()
}

// Closed reports whether the connection was evicted or released.
func (n *Pending) Closed() bool {
	if n == nil {
		return false
	}
	n.port.mu.Lock()
	defer n.port.mu.Unlock()
	return n.state == isClosed
}

func (n *Pending) closeLocked() {
	switch n.state {
	case isClosed:
		return
	case isPending:
		n.forgetLocked()
	case isAuthenticated:
	}
	n.state = isClosed
	n.port.mu.open--
}

func (n *Pending) forgetLocked() {
	mu := &n.port.mu
	delete(mu.pending, n)
	if mu.perHost[n.host]--; mu.perHost[n.host] == 0 {
		delete(mu.perHost, n.host)
	}
}

// reservedFiles is the number of file descriptors for the log, the store and connections to peers. maxPendingPeers is
// the maximum for connections to the peer port that have not sent a hello.
const (
	reservedFiles   = 128
	maxPendingPeers = 512
)

// Files returns the limits for connections of clients and for pending connections of peers in a process with that
// many file descriptors. If all is 0, their number is unknown, and clients is 0, which means no limit.
func Files(all int) (clients, pendingPeers int) {
	if all == 0 {
		return 0, maxPendingPeers
	}
	pendingPeers = min(maxPendingPeers, max(1, all/8))
	return max(all-reservedFiles-pendingPeers, all/2), pendingPeers
}

// Listener returns l with its connections counted as pending. PendingOf returns the Pending of such a connection.
func (p *Port) Listener(l net.Listener) net.Listener { return &listener{l, p} }

type listener struct {
	net.Listener
	port *Port
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if n, ok := l.port.Admit(c); ok {
			return &conn{c, n}, nil
		}
	}
}

// conn is a connection of a listener.
type conn struct {
	net.Conn
	pending *Pending
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.pending.Release()
	return c.Conn.Close()
}

// CloseWrite closes the direction to the client, if the connection can do that.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// layer is a connection on top of another one, such as a tls.Conn.
type layer interface{ NetConn() net.Conn }

// PendingOf returns the Pending of a connection that a Port's listener has accepted,
// below any layers. It returns nil for other connections.
func PendingOf(c net.Conn) *Pending {
	for {
		switch at := c.(type) {
		case *conn:
			return at.pending
		case layer:
			c = at.NetConn()
		default:
			return nil
		}
	}
}

// rawConn returns the connection below all layers. Closing a tls.Conn may wait until its close notification is
// written.
func rawConn(c net.Conn) net.Conn {
	for {
		above, ok := c.(layer)
		if !ok {
			return c
		}
		c = above.NetConn()
	}
}

// prefixBits is the length of the IPv6 prefix that counts as one host: a host usually has all addresses with the same
// prefix.
const prefixBits = 64

// hostOf returns the host of an address: an IPv4 address, the /64 prefix of an IPv6
// address, or the whole text of another kind of address.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		host = addr.String()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, prefixBits).Masked().String()
}

package connlimit

import (
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// client is a connection from a host.
type client struct {
	net.Conn

	host   string
	closed bool
}

func (c *client) Close() error         { c.closed = true; return nil }
func (c *client) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.host), Port: 1} }

func admit(p *Port, host string) (*client, *Pending) {
	c := &client{host: host}
	n, ok := p.Admit(c)
	if !ok {
		return c, nil
	}
	return c, n
}

func newPort(maxPending, maxOpen int) *Port {
	return New(Config{MaxPending: maxPending, MaxOpen: maxOpen, Logger: slog.New(slog.DiscardHandler)})
}

// A new connection evicts the most silent one, and never an authenticated one.
func TestTheMostSilentConnectionIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPort(3, 0)
		old, authenticated := admit(p, "10.0.0.1")
		if !authenticated.Authenticated() {
			t.Error("Authenticated() = false of an open connection")
		}
		first, inHandshake := admit(p, "10.0.0.1")
		time.Sleep(time.Second)
		second, _ := admit(p, "10.0.0.1")
		third, last := admit(p, "10.0.0.1")
		time.Sleep(time.Second)
		inHandshake.Progress()
		_, _ = admit(p, "10.0.0.1")
		if old.closed || first.closed || second.closed == third.closed {
			t.Errorf("closed: %v, %v, %v, %v; want one of the last two evicted", old.closed, first.closed, second.closed, third.closed)
		}
		if third.closed && (last.Authenticated() || !last.Closed()) {
			t.Error("an evicted connection has authenticated")
		}
		if s := p.Stats(); s != (Stats{Pending: 3, Open: 4, Evicted: 1}) {
			t.Errorf("Stats() = %+v", s)
		}
	})
}

// A host with many pending connections loses its own, however new they are.
func TestTheHostWithTheMostConnectionsIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPort(8, 0)
		peer, _ := admit(p, "10.0.0.1")
		peer6, _ := admit(p, "2001:db8:1::1")
		time.Sleep(time.Second)
		for i := range 100 {
			admit(p, "10.0.0.2")
			// All addresses of a /64 are one host.
			admit(p, net.IP{0x20, 0x01, 0x0d, 0xb8, 15: byte(i)}.String())
		}
		if peer.closed || peer6.closed {
			t.Errorf("closed: %v, %v; want the hosts with one connection left alone", peer.closed, peer6.closed)
		}
	})
}

// Above MaxOpen a pending connection is evicted. If there is none the new connection
// is rejected.
func TestOpenConnections(t *testing.T) {
	p := newPort(10, 3)
	var held []*Pending
	for range 2 {
		_, n := admit(p, "10.0.0.1")
		n.Authenticated()
		held = append(held, n)
	}
	silent, evicted := admit(p, "10.0.0.2")
	_, n := admit(p, "10.0.0.3")
	if !silent.closed || evicted.Authenticated() {
		t.Error("a pending connection was not evicted for a new one")
	}
	n.Authenticated()
	if c, n := admit(p, "10.0.0.4"); n != nil || !c.closed {
		t.Error("a connection above MaxOpen was admitted")
	}
	held[0].Release()
	held[0].Release()
	if _, n := admit(p, "10.0.0.4"); n == nil {
		t.Error("a connection is rejected after another one has closed")
	}
	if s := p.Stats(); s != (Stats{Pending: 1, Open: 3, Evicted: 1, Rejected: 1}) {
		t.Errorf("Stats() = %+v", s)
	}
}

// PendingOf finds the connection of a listener below TLS. Closing it ends its count.
func TestListener(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newPort(10, 0)
	limited := p.Listener(l)
	defer limited.Close()
	near, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := limited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	secure := tls.Server(far, new(tls.Config))
	if PendingOf(secure) == nil || PendingOf(near) != nil {
		t.Error("PendingOf() does not find the connections of the listener alone")
	}
	PendingOf(secure).Authenticated()
	_ = far.Close()
	if s := p.Stats(); s != (Stats{}) {
		t.Errorf("Stats() = %+v after Close, want none", s)
	}
	var none *Pending
	none.Progress()
	none.Release()
	if !none.Authenticated() || none.Closed() {
		t.Error("a connection of no Port is not authenticated, or is closed")
	}
}

// Clients and peers together leave file descriptors to the log and the store.
func TestConnectionsLeaveFiles(t *testing.T) {
	for _, all := range []int{64, 256, 512, 1024, 2048, 4096, 1 << 20} {
		clients, peers := Files(all)
		if left := all - clients - peers; left < min(reservedFiles, all/4) {
			t.Errorf("of %d files clients may have %d, peers %d: %d are left", all, clients, peers, left)
		}
	}
	if clients, peers := Files(0); clients != 0 || peers != maxPendingPeers {
		t.Errorf("Files(0) = %d, %d, want no limit and %d", clients, peers, maxPendingPeers)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

package transport

import (
	"net"
	"slices"

	"github.com/leaderlease/go/kvnode/internal/arrivals"
)

// hostAt returns the host at the other end of c. What a peer's name stands for is
// learned from connections that led to it, and never asked of the network when
// somebody connects.
func hostAt(c net.Conn) *string { return new(arrivals.Host(c.RemoteAddr().String())) }

// Knows reports whether a peer is to be found at a host, an IP address: its
// addresses say so, or a connection to or from it did.
func (t *Transport) Knows(host string) bool {
	for _, p := range *t.peers.Load() {
		if p.isAt(host) {
			return true
		}
	}
	return false
}

func (p *peer) isAt(host string) bool {
	for _, at := range []*string{p.dialled.Load(), p.came.Load()} {
		if at != nil && *at == host {
			return true
		}
	}
	return slices.ContainsFunc(*p.addrs.Load(), func(addr string) bool { return arrivals.Host(addr) == host })
}

package listener

import (
	"context"
	"net"
	"net/http"

	"github.com/leaderlease/go/kvnode/internal/arrivals"
)

// otherFiles are the file descriptors that clients leave to the log, the store and
// the peers, with their hall.
const otherFiles = 256

// newHall returns where clients wait until they have begun.
func (e *Entrance) newHall(strangers, known arrivals.Bounds) *arrivals.Hall {
	c := arrivals.Config{Port: "client", Strangers: strangers, Reserve: known, Known: e.knows, Logger: e.log}
	if files := maxFiles(); files > 0 {
		c.Open = max(files-otherFiles, files/2)
		c.Strangers.Guests, c.Reserve.Guests = min(c.Strangers.Guests, c.Open/2), min(c.Reserve.Guests, c.Open/4)
	}
	return arrivals.New(c)
}

// knows reports whether a host is this machine, by the address that it has for
// itself, or a member's.
func (e *Entrance) knows(host string) bool {
	return host == "127.0.0.1" || host == "::1" || e.isMember(host)
}

func (e *Entrance) isMember(host string) bool {
	node := e.members.Load()
	return node != nil && node.Knows(host)
}

// Meet makes the guests among a server's connections introduce themselves with their first
// request, and its requests known to Hosts.
func Meet(p *http.Server) *http.Server {
	p.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return arrivals.Of(c).Context(noteReach(ctx, c))
	}
	p.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateActive {
			arrivals.Of(c).Introduce() // if it was cut, the next read says so
		}
	}
	return p
}

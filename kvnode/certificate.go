package kvnode

import (
	"net"
	"strings"

	"github.com/leaderlease/go/kvnode/tlsconf"
	"github.com/leaderlease/go/kvnode/transport"
)

// secure makes the links speak TLS, for joining as for everything else.
func (c *Config) secure() {
	if c.PeerTLS != nil {
		c.Listener, c.Dial = c.PeerTLS.Listener(c.Listener), c.PeerTLS.Dialer(c.Dial)
	}
}

// authenticate checks that the certificate at the other end of conn is valid for
// where the member is registered to be found. A member that nobody has told this
// one of may have been added meanwhile (Admit); its certificate must at least be
// valid for where it says that it is to be found, so it cannot pose as another.
func (n *Node) authenticate(conn net.Conn, h transport.Hello) error {
	if n.cfg.PeerTLS == nil || !n.cfg.PeerTLS.Requires() {
		return nil
	}
	hosts := n.hostsOf(h.From)
	if len(hosts) == 0 {
		hosts = hostsIn(strings.Split(h.PeerURLs, ","))
	}
	if len(hosts) == 0 { // it was dialled, at a host that the dialler has checked
		return tlsconf.CheckSigned(conn)
	}
	return tlsconf.CheckHosts(conn, hosts)
}

// hostsOf returns the hosts of a member's peer URLs, as they are registered or,
// before the registry knows the member, as they were when this one began.
func (n *Node) hostsOf(member uint64) []string {
	m, ok := n.store.Members().ByID[member]
	if !ok {
		for _, first := range n.id.Members {
			if first.ID == member {
				m = first
			}
		}
	}
	return hostsIn(m.PeerURLs)
}

func hostsIn(peerURLs []string) (hosts []string) {
	for _, addr := range hostPorts(peerURLs) {
		host, _, err := net.SplitHostPort(addr)
		if err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

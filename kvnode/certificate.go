package kvnode

import (
	"net"
	"strings"

	"github.com/leaderlease/go/kvnode/peerurl"
	"github.com/leaderlease/go/kvnode/tlsconf"
	"github.com/leaderlease/go/kvnode/transport"
)

// secure makes the links speak TLS, for joining as for everything else.
func (c *Config) secure() {
	if c.PeerTLS != nil {
		c.Listener, c.Dial = c.PeerTLS.Listener(c.Listener), c.PeerTLS.Dialer(c.Dial)
	}
}

// authenticate checks that the certificate at the other end of conn is valid for one
// of the hosts where that member is to be found, as this member believes (peer): what
// the other end says of itself does not count. A member of another cluster, which is
// refused whatever it shows, must be where it says that it is.
func (p *parts) authenticate(conn net.Conn, h transport.Hello) error {
	if p.cfg.PeerTLS == nil || !p.cfg.PeerTLS.Requires() {
		return nil
	}
	urls := strings.Split(h.PeerURLs, ",")
	if h.ClusterID == p.ClusterID() {
		m, err := p.book.peer(h.From)
		if err != nil {
			return err
		}
		urls = m.PeerURLs
	}
	err := tlsconf.CheckHosts(conn, peerurl.Hosts(urls))
	if err != nil && h.ClusterID == p.ClusterID() {
		p.book.askAround() // the member may have moved
	}
	return err
}

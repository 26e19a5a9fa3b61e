package kvnode

import (
	"net"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// secure makes the links speak TLS, for joining as for everything else.
func (c *Config) secure() {
	if c.PeerTLS != nil {
		c.Listener, c.Dial = c.PeerTLS.Listener(c.Listener), c.PeerTLS.Dialer(c.Dial)
	}
}

// requiresCertificates reports whether a peer proves by a certificate which member it is.
func (c *Config) requiresCertificates() bool { return c.PeerTLS != nil && c.PeerTLS.Requires() }

// authenticate applies the rules of package admission to the certificate at the other end of conn. Without
// certificates there is nothing to check here, and Admit applies them to what the hello claims.
func (p *parts) authenticate(conn net.Conn, h transport.Hello) error {
	if !p.cfg.requiresCertificates() {
		return nil
	}
	leaf, err := tlsconf.Leaf(conn)
	if err != nil {
		return err
	}
	return p.book.members().MayConnect(h.From, admission.Certified(leaf))
}

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// certificates are where each side's come from, nil for plain text.
type certificates struct{ client, peer *tlsconf.Source }

// certificates reads the files, and makes what is to be made.
func (c *Config) certificates() (certs certificates, err error) {
	var clientErr, peerErr error
	certs.client, clientErr = tlsconf.New(c.ClientTLS)
	certs.peer, peerErr = tlsconf.New(c.PeerTLS)
	c.warnOfSharedAuthority(certs)
	return certs, errors.Join(clientErr, peerErr)
}

// warnOfSharedAuthority names the risk of one authority for clients and members, unless the configuration narrows the
// certificates of members. The start never refuses it: kubeadm's manifests have it.
func (c *Config) warnOfSharedAuthority(certs certificates) {
	ca := tlsconf.Shared(certs.client, certs.peer)
	if ca == "" || len(c.PeerTLS.AllowedCNs) > 0 || len(c.PeerTLS.AllowedHostnames) > 0 {
		return
	}
	risk := "a client with a certificate that is good for serverAuth too, and valid for the host of a member, is accepted as a member"
	if !certs.peer.OneCertificate() {
		risk = "a client with a certificate that is valid for the host of a member is accepted as a member, since PeerTLS.ClientCertFile is set"
	}
	c.log().Warn("one authority signs the certificates of clients and of members: "+risk+
		"; give members an authority of their own (PeerTLS.TrustedCAFile), or narrow it by PeerTLS.AllowedCNs or PeerTLS.AllowedHostnames", "authority", ca)
}

// collect tells how the files fare. It looks for changes, so that a scrape finds
// them even if nobody connects.
func (certs certificates) collect(out chan<- prometheus.Metric) {
	for side, source := range map[string]*tlsconf.Source{"client": certs.client, "peer": certs.peer} {
		if source == nil {
			continue
		}
		st := source.Stats()
		out <- prometheus.MustNewConstMetric(tlsReloads, prometheus.CounterValue, float64(st.Reloads), side)
		out <- prometheus.MustNewConstMetric(tlsFailures, prometheus.CounterValue, float64(st.Failures), side)
		out <- prometheus.MustNewConstMetric(tlsNotAfter, prometheus.GaugeValue, float64(st.NotAfter.Unix()), side)
	}
}

// leaderCredentials connect to other members' client URLs. They follow the files.
type leaderCredentials struct {
	credentials.TransportCredentials // what is not about handshakes
	source                           *tlsconf.Source
}

func newLeaderCredentials(source *tlsconf.Source) grpc.DialOption {
	return grpc.WithTransportCredentials(&leaderCredentials{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), source})
}

// ClientHandshake implements credentials.TransportCredentials.
func (l *leaderCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority
	}
	return credentials.NewTLS(l.source.Client(host, "h2")).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (l *leaderCredentials) Clone() credentials.TransportCredentials {
	return &leaderCredentials{l.TransportCredentials.Clone(), l.source}
}

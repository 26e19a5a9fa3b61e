package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/server/internal/listener"
)

// tlsDefaults fills in both sides' TLS options from the rest of c.
func (c *Config) tlsDefaults() {
	set(&c.TLSMinVersion, "TLS1.2")
	set(&c.SelfSignedYears, 1)
	for _, side := range []*tlsconf.Config{&c.ClientTLS, &c.PeerTLS} {
		side.MinVersion, side.MaxVersion, side.CipherSuites = c.TLSMinVersion, c.TLSMaxVersion, c.TLSCipherSuites
		side.AutoYears = c.SelfSignedYears
	}
	client, peer := &c.ClientTLS, &c.PeerTLS
	peer.Peers = true
	client.Logger, peer.Logger = c.named(), c.named()
	set(&client.AutoDir, filepath.Join(c.Node.DataDir, tlsconf.AutoFolder, "client"))
	set(&peer.AutoDir, filepath.Join(c.Node.DataDir, tlsconf.AutoFolder, "peer"))
	setURLs(&client.AutoHosts, hostsOf(c.ListenClientURLs, c.ListenClientHTTPURLs, c.ListenMetricsURLs, c.ListenRedisURLs, c.Node.ClientURLs)...)
	setURLs(&peer.AutoHosts, hostsOf(c.ListenPeerURLs, c.AdvertisePeerURLs)...)
	// Without client certificates ClientTLS has no authority, but this member must verify
	// other members' certificates when it connects to them.
	set(&client.MemberCAFile, peer.TrustedCAFile)
}

// hostsOf returns the hosts that a certificate can be valid for.
func hostsOf(urls ...[]string) (hosts []string) {
	for _, s := range slices.Concat(urls...) {
		if host, _, err := listener.ParseURL(s); err == nil && !listener.Wildcard(host) && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// scheme changes an http URL to https if TLS is enabled.
func scheme(s string, c *tlsconf.Config) string {
	if s != "" && c.Enabled() {
		return "https" + s[len("http"):]
	}
	return s
}

// checkTLS checks the TLS options and the schemes of the URLs.
func (c *Config) checkTLS() (errs []error) {
	errs = append(errs, c.ClientTLS.Validate(), c.PeerTLS.Validate(), c.PeerTLS.ValidateShared())
	errs = slices.Concat(errs, c.checkPeerScheme(), c.checkClientScheme(), c.checkPlaintext())
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// checkPeerScheme checks that either all members' peer URLs are https or none is.
func (c *Config) checkPeerScheme() (errs []error) {
	seen := make(map[string]bool)
	check := func(field string, urls []string) {
		for _, s := range urls {
			if _, _, err := listener.ParseURL(s); err != nil || seen[s] || listener.SpeaksTLS(s) == c.PeerTLS.Enabled() {
				continue
			}
			seen[s] = true
			if c.PeerTLS.Enabled() {
				errs = append(errs, fmt.Errorf("%s %s must be https, since peers speak TLS", field, s))
				continue
			}
			errs = append(errs, fmt.Errorf("%s %s needs PeerTLS.CertFile, PeerTLS.KeyFile and PeerTLS.TrustedCAFile, or PeerTLS.Auto", field, s))
		}
	}
	check("ListenPeerURLs", c.ListenPeerURLs)
	check("AdvertisePeerURLs", c.AdvertisePeerURLs)
	for _, m := range c.Node.Cluster {
		check("Node.Cluster", m.PeerURLs)
	}
	return errs
}

// listenField is a field of Config with URLs to listen on.
type listenField struct {
	field string
	urls  []string
}

const metricsField = "ListenMetricsURLs"

// clientListenFields returns the fields with URLs for clients.
func (c *Config) clientListenFields() []listenField {
	return []listenField{
		{"ListenClientURLs", c.ListenClientURLs},
		{"ListenClientHTTPURLs", c.ListenClientHTTPURLs},
		{metricsField, c.ListenMetricsURLs},
		{"ListenRedisURLs", c.ListenRedisURLs},
	}
}

func (c *Config) checkClientScheme() (errs []error) {
	used := false
	for _, l := range c.clientListenFields() {
		for _, s := range l.urls {
			switch secure := listener.SpeaksTLS(s); {
			case secure && !c.ClientTLS.Enabled():
				errs = append(errs, fmt.Errorf("%s %s needs ClientTLS.CertFile and ClientTLS.KeyFile, or ClientTLS.Auto", l.field, s))
			case secure:
				used = true
			case c.ClientTLS.RequiresCert() && l.field != metricsField && !listener.IsLocal(s):
				errs = append(errs, fmt.Errorf("%s %s would accept clients without the certificate that ClientTLS.TrustedCAFile requires; make it https", l.field, s))
			}
		}
	}
	if c.ClientTLS.Enabled() && !used {
		errs = append(errs, errors.New("ClientTLS.CertFile or ClientTLS.Auto is given, but no URL to listen on for clients is https"))
	}
	return errs
}

// checkPlaintext rejects plain text that can be read on the network, unless AllowPlaintext is
// set.
func (c *Config) checkPlaintext() (errs []error) {
	if c.AllowPlaintext {
		return nil
	}
	for _, l := range append(c.clientListenFields(), listenField{"ListenPeerURLs", c.ListenPeerURLs}) {
		for _, s := range l.urls {
			if host, _, err := listener.ParseURL(s); err == nil && !listener.SpeaksTLS(s) && !listener.IsLoopback(host) {
				errs = append(errs, fmt.Errorf("%s %s is plain text for the whole network; make it https, or set AllowPlaintext if no other machine can reach it", l.field, s))
			}
		}
	}
	return errs
}

// Warnings describes settings of c that are allowed but may be a mistake. It expects c after
// WithDefaults. Start logs them.
func (c *Config) Warnings() (all []string) {
	for _, l := range c.clientListenFields() {
		for _, s := range l.urls {
			if c.ClientTLS.RequiresCert() && l.field != metricsField && !listener.SpeaksTLS(s) && listener.IsLocal(s) {
				all = append(all, fmt.Sprintf("%s %s accepts every client on this machine without the certificate that ClientTLS.TrustedCAFile requires", l.field, s))
			}
		}
	}
	return all
}

// certificates are the sources of each side's certificates, nil for plain text.
type certificates struct{ client, peer *tlsconf.Source }

// certificates reads the certificate files, and creates self-signed certificates if configured.
func (c *Config) certificates() (certs certificates, err error) {
	var clientErr, peerErr error
	certs.client, clientErr = tlsconf.New(c.ClientTLS)
	certs.peer, peerErr = tlsconf.New(c.PeerTLS)
	c.warnOfSharedAuthority(certs)
	return certs, errors.Join(clientErr, peerErr)
}

// warnOfSharedAuthority warns if one authority signs the certificates of clients and members and
// the configuration does not restrict the members' certificates. Start does not reject it,
// because kubeadm's manifests are configured like this.
func (c *Config) warnOfSharedAuthority(certs certificates) {
	ca := tlsconf.SharedAuthority(certs.client, certs.peer)
	if ca == "" || len(c.PeerTLS.AllowedCNs) > 0 || len(c.PeerTLS.AllowedHostnames) > 0 {
		return
	}
	risk := "a client with a certificate that is also good for serverAuth and valid for the host of a member is accepted as a member"
	if !certs.peer.OneCertificate() {
		risk = "a client with a certificate that is valid for the host of a member is accepted as a member, since PeerTLS.ClientCertFile is set"
	}
	c.log().Warn("one authority signs the certificates of clients and of members: "+risk+
		"; give members an authority of their own (PeerTLS.TrustedCAFile), or restrict it by PeerTLS.AllowedCNs or PeerTLS.AllowedHostnames", "authority", ca)
}

// collect exports the state of the files. It checks them for changes, so that a scrape finds a
// change even if no client connects.
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

// memberCredentials are the credentials for other members' client URLs. They follow changes of
// the files.
type memberCredentials struct {
	credentials.TransportCredentials // the methods other than handshakes
	source                           *tlsconf.Source
}

func newMemberCredentials(source *tlsconf.Source) grpc.DialOption {
	return grpc.WithTransportCredentials(&memberCredentials{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), source})
}

// ClientHandshake implements credentials.TransportCredentials.
func (l *memberCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority
	}
	return credentials.NewTLS(l.source.Client(host, "h2")).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (l *memberCredentials) Clone() credentials.TransportCredentials {
	return &memberCredentials{l.TransportCredentials.Clone(), l.source}
}

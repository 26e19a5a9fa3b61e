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

	"github.com/leaderlease/go/kvnode/internal/listener"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// tlsDefaults fills in what the rest of c says about TLS.
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
	setURLs(&client.AutoHosts, hostsOf(c.ListenClientURLs, c.ListenClientHTTPURLs, c.ListenMetricsURLs, c.Node.ClientURLs)...)
	setURLs(&peer.AutoHosts, hostsOf(c.ListenPeerURLs, c.AdvertisePeerURLs)...)
	// Who is not asked for certificates is not asked who may sign them either, but
	// other members' certificates have to be checked.
	set(&client.LeaderCAFile, peer.TrustedCAFile)
}

// hostsOf returns the hosts that a certificate can be for.
func hostsOf(urls ...[]string) (hosts []string) {
	for _, s := range slices.Concat(urls...) {
		if host, _, err := listener.ParseURL(s); err == nil && !listener.Wildcard(host) && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// scheme turns a URL of ours into one with TLS, if there is TLS.
func scheme(s string, c *tlsconf.Config) string {
	if s != "" && c.Enabled() {
		return "https" + s[len("http"):]
	}
	return s
}

// checkTLS checks that what each URL speaks is possible and was meant.
func (c *Config) checkTLS() (errs []error) {
	errs = append(errs, c.ClientTLS.Validate(), c.PeerTLS.Validate(), c.PeerTLS.ValidateShared())
	errs = slices.Concat(errs, c.checkPeerScheme(), c.checkClientScheme(), c.checkPlaintext())
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// checkPeerScheme checks that members agree: either all speak TLS or none.
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

// listenField is one field that says where to listen.
type listenField struct {
	field string
	urls  []string
}

const metricsField = "ListenMetricsURLs"

// clientListenFields is where a server listens for others than peers.
func (c *Config) clientListenFields() []listenField {
	return []listenField{
		{"ListenClientURLs", c.ListenClientURLs},
		{"ListenClientHTTPURLs", c.ListenClientHTTPURLs},
		{metricsField, c.ListenMetricsURLs},
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
				errs = append(errs, fmt.Errorf("%s %s would let clients in without the certificate that ClientTLS.TrustedCAFile asks for; make it https", l.field, s))
			}
		}
	}
	if c.ClientTLS.Enabled() && !used {
		errs = append(errs, errors.New("ClientTLS.CertFile or ClientTLS.Auto is given, but no URL to listen on for clients is https"))
	}
	return errs
}

// checkPlaintext refuses plain text that can be read on the network, unless that
// was asked for.
func (c *Config) checkPlaintext() (errs []error) {
	if c.AllowPlaintext {
		return nil
	}
	for _, l := range append(c.clientListenFields(), listenField{"ListenPeerURLs", c.ListenPeerURLs}) {
		for _, s := range l.urls {
			if host, _, err := listener.ParseURL(s); err == nil && !listener.SpeaksTLS(s) && !listener.IsLoopback(host) {
				errs = append(errs, fmt.Errorf("%s %s is plain text for the whole network; make it https, or give AllowPlaintext if others are kept out", l.field, s))
			}
		}
	}
	return errs
}

// Warnings name what is allowed, and may not have been meant, after WithDefaults.
// Start logs them.
func (c *Config) Warnings() (all []string) {
	for _, l := range c.clientListenFields() {
		for _, s := range l.urls {
			if c.ClientTLS.RequiresCert() && l.field != metricsField && !listener.SpeaksTLS(s) && listener.IsLocal(s) {
				all = append(all, fmt.Sprintf("%s %s lets whoever is on this machine in without the certificate that ClientTLS.TrustedCAFile asks for", l.field, s))
			}
		}
	}
	return all
}

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

package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/server/listener"
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

// listens is one field that says where to listen.
type listens struct {
	field string
	urls  []string
}

const metricsField = "ListenMetricsURLs"

// listening is where a server listens for others than peers.
func (c *Config) listening() []listens {
	return []listens{
		{"ListenClientURLs", c.ListenClientURLs},
		{"ListenClientHTTPURLs", c.ListenClientHTTPURLs},
		{metricsField, c.ListenMetricsURLs},
	}
}

func (c *Config) checkClientScheme() (errs []error) {
	used := false
	for _, l := range c.listening() {
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
	for _, l := range append(c.listening(), listens{"ListenPeerURLs", c.ListenPeerURLs}) {
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
	for _, l := range c.listening() {
		for _, s := range l.urls {
			if c.ClientTLS.RequiresCert() && l.field != metricsField && !listener.SpeaksTLS(s) && listener.IsLocal(s) {
				all = append(all, fmt.Sprintf("%s %s lets whoever is on this machine in without the certificate that ClientTLS.TrustedCAFile asks for", l.field, s))
			}
		}
	}
	return all
}

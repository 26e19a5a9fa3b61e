package server

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/leaderlease/go/kvnode/server/listener"
)

// newHosts returns the names of this member, and those of HostWhitelist.
func newHosts(c *Config) *listener.HostCheck {
	urls := slices.Concat(c.Node.ClientURLs, c.ListenClientURLs, c.ListenClientHTTPURLs, c.ListenMetricsURLs, c.AdvertisePeerURLs)
	return listener.NewHostCheck(urls, c.HostWhitelist, c.log())
}

// checkHosts checks the form of HostWhitelist: what can match nothing is an error.
func (c *Config) checkHosts() (errs []error) {
	for _, name := range c.HostWhitelist {
		if _, err := netip.ParseAddr(name); err != nil && name != listener.AnyHost && strings.ContainsAny(name, "*/:[] ") {
			errs = append(errs, fmt.Errorf("HostWhitelist %q must be a host name without scheme, port and wildcard, or just * for all", name))
		}
	}
	return errs
}

package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leaderlease/go/kvnode/server/listener"
)

// maxSocketPath is what an address of a unix socket has room for on Linux.
const maxSocketPath = 107

// checkClientURLs checks the form of URLs that clients may use, which may be unix
// sockets.
func checkClientURLs(field string, urls, known []string) (errs []error) {
	rest := slices.DeleteFunc(slices.Clone(urls), func(s string) bool {
		path, ok := listener.SocketPath(s)
		switch {
		case !ok || slices.Contains(known, s):
		case path == "":
			errs = append(errs, fmt.Errorf("%s %q must be unix:///path, or unixs:///path with TLS", field, s))
		case len(path) > maxSocketPath:
			errs = append(errs, fmt.Errorf("%s %q has a path of %d bytes, and the system takes %d", field, s, len(path), maxSocketPath))
		}
		return ok
	})
	return append(errs, checkURLs(field, rest, known)...)
}

// checkAdvertised demands an address of a member that is not alone: the others pass
// requests on to it.
func (c *Config) checkAdvertised() (errs []error) {
	onlySockets := !slices.ContainsFunc(c.Node.ClientURLs, func(s string) bool { _, ok := listener.SocketPath(s); return !ok })
	if onlySockets && len(c.Node.Cluster) > 1 {
		errs = append(errs, fmt.Errorf("Node.ClientURLs %s: other members cannot pass requests on to a unix socket; add one that is http or https",
			strings.Join(c.Node.ClientURLs, ",")))
	}
	return errs
}

// checkURLs checks the form of URLs. What is wrong with those in known was
// said already: defaults repeat what was given elsewhere.
func checkURLs(field string, urls, known []string) (errs []error) {
	for _, s := range urls {
		if _, _, err := listener.ParseURL(s); err != nil && !slices.Contains(known, s) {
			errs = append(errs, fmt.Errorf("%s %w", field, err))
		}
	}
	return errs
}

// checkDialled checks URLs of peers, which others connect to. What is wrong with
// those in known was said already.
func checkDialled(field string, urls, known []string) (errs []error) {
	for _, s := range urls {
		host, port, err := listener.ParseURL(s)
		switch {
		case err != nil && !slices.Contains(known, s):
			errs = append(errs, fmt.Errorf("%s %w", field, err))
		case err != nil:
		case listener.Wildcard(host):
			errs = append(errs, fmt.Errorf("%s %q: other members cannot connect to an unspecified address; give the one of this machine", field, s))
		case port == "0":
			errs = append(errs, fmt.Errorf("%s %q: other members cannot connect to port 0; give the one that is listened on", field, s))
		}
	}
	return errs
}

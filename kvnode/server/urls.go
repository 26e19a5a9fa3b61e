package server

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
)

// parseURL returns the address in a URL of the form http://host:port, or https.
func parseURL(s string) (host, port string, err error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", "", fmt.Errorf("%q is not a URL like http://host:port", s)
	}
	switch {
	case u.Scheme == "unix" || u.Scheme == "unixs":
		return "", "", fmt.Errorf("%q: unix sockets are for clients, and members connect to http://host:port or https://host:port", s)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "", fmt.Errorf("%q must begin with http:// or https://", s)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", "", fmt.Errorf("%q must be http://host:port and nothing else", s)
	}
	host, port, err = net.SplitHostPort(u.Host)
	if err != nil {
		return "", "", fmt.Errorf("%q must be http://host:port, with the port", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fmt.Errorf("%q: port %q must be a number from 0 to 65535", s, port)
	}
	return host, port, nil
}

// wildcard reports whether host means all interfaces, so no peer can dial it.
func wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// checkURLs checks the form of URLs. What is wrong with those in known was
// said already: defaults repeat what was given elsewhere.
func checkURLs(field string, urls, known []string) (errs []error) {
	for _, s := range urls {
		if _, _, err := parseURL(s); err != nil && !slices.Contains(known, s) {
			errs = append(errs, fmt.Errorf("%s %w", field, err))
		}
	}
	return errs
}

// checkDialled checks URLs of peers, which others connect to. What is wrong with
// those in known was said already.
func checkDialled(field string, urls, known []string) (errs []error) {
	for _, s := range urls {
		host, port, err := parseURL(s)
		switch {
		case err != nil && !slices.Contains(known, s):
			errs = append(errs, fmt.Errorf("%s %w", field, err))
		case err != nil:
		case wildcard(host):
			errs = append(errs, fmt.Errorf("%s %q: other members cannot connect to an unspecified address; give the one of this machine", field, s))
		case port == "0":
			errs = append(errs, fmt.Errorf("%s %q: other members cannot connect to port 0; give the one that is listened on", field, s))
		}
	}
	return errs
}

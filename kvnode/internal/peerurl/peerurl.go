// Package peerurl is about where members listen for their peers: URLs of a scheme, a host
// and a port. Whatever is spoken there: a cluster may turn to TLS.
package peerurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
)

// Limits of what is kept of one member. All members' URLs have to fit into one reply.
const (
	// MaxURLs is the number of peer URLs of a member.
	MaxURLs = 32
	// MaxLength is the number of bytes of one. A host name has 253 at most.
	MaxLength = 512
)

// Check reports what is wrong with the peer URLs of one member.
func Check(urls []string) error {
	if len(urls) == 0 {
		return errors.New("a member needs a peer URL")
	}
	if len(urls) > MaxURLs {
		return fmt.Errorf("a member has %d peer URLs, and %d are allowed", len(urls), MaxURLs)
	}
	for _, u := range urls {
		if len(u) > MaxLength {
			return fmt.Errorf("peer URL %.32q... has %d bytes, and %d are allowed", u, len(u), MaxLength)
		}
		if _, err := HostPort(u); err != nil {
			return err
		}
	}
	return nil
}

// HostPort returns what to dial for a peer URL.
func HostPort(peer string) (string, error) {
	u, err := url.Parse(peer)
	if err != nil {
		return "", fmt.Errorf("peer URL %q: %w", peer, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("peer URL %q: scheme %q must be http or https", peer, u.Scheme)
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return "", fmt.Errorf("peer URL %q must be scheme://host:port: %w", peer, err)
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("peer URL %q must not have more than scheme, host and port", peer)
	}
	return u.Host, nil
}

// HostPorts is HostPort for URLs that were validated; others are left out.
func HostPorts(urls []string) (addrs []string) {
	for _, u := range urls {
		if addr, err := HostPort(u); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// Hosts returns their hosts.
func Hosts(urls []string) (hosts []string) {
	for _, addr := range HostPorts(urls) {
		host, _, err := net.SplitHostPort(addr)
		if err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// Address is what a peer URL leads to, and the URL itself if that cannot be told.
func Address(peer string) string {
	addr, err := HostPort(peer)
	if err != nil {
		return peer
	}
	return addr
}

// AreSame reports whether some lead to where others do, and to nothing else.
func AreSame(some, others []string) bool {
	addresses := func(urls []string) (all []string) {
		for _, u := range urls {
			all = append(all, Address(u))
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(addresses(some), addresses(others))
}

// AreAmong reports whether all of some lead to where others do.
func AreAmong(some, others []string) bool {
	addrs := HostPorts(others)
	return !slices.ContainsFunc(HostPorts(some), func(addr string) bool { return !slices.Contains(addrs, addr) })
}

// IsLoopback reports whether only this machine reaches a peer URL.
func IsLoopback(peer string) bool {
	u, err := url.Parse(peer)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

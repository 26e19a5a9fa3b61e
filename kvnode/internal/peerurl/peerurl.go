// Package peerurl checks and compares peer URLs: scheme, host and port of a member's listener for
// its peers. Comparisons ignore the scheme, because a cluster may change to TLS.
package peerurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
)

// Limits for one member. The URLs of all members must fit into one reply.
const (
	// MaxURLs is the maximum number of peer URLs of a member.
	MaxURLs = 32
	// MaxLength is the maximum number of bytes of a URL. A host name has at most 253.
	MaxLength = 512
)

// Check returns the first error of the peer URLs of one member.
func Check(urls []string) error {
	if len(urls) == 0 {
		return errors.New("a member needs a peer URL")
	}
	if len(urls) > MaxURLs {
		return fmt.Errorf("%d peer URLs of a member exceed the limit of %d", len(urls), MaxURLs)
	}
	for _, u := range urls {
		if len(u) > MaxLength {
			return fmt.Errorf("peer URL %.32q... of %d bytes exceeds the limit of %d", u, len(u), MaxLength)
		}
		if _, err := HostPort(u); err != nil {
			return err
		}
	}
	return nil
}

// HostPort returns the address of a peer URL, host:port.
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

// HostPorts returns the addresses of urls. It leaves out invalid ones.
func HostPorts(urls []string) (addrs []string) {
	for _, u := range urls {
		if addr, err := HostPort(u); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// Hosts returns the hosts of urls. It leaves out invalid ones.
func Hosts(urls []string) (hosts []string) {
	for _, addr := range HostPorts(urls) {
		host, _, err := net.SplitHostPort(addr)
		if err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// Address returns the address of a peer URL, or the URL itself if it is invalid.
func Address(peer string) string {
	addr, err := HostPort(peer)
	if err != nil {
		return peer
	}
	return addr
}

// AreSame reports whether some and others have the same addresses.
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

// AreAmong reports whether others have all addresses of some.
func AreAmong(some, others []string) bool {
	addrs := HostPorts(others)
	return !slices.ContainsFunc(HostPorts(some), func(addr string) bool { return !slices.Contains(addrs, addr) })
}

package listener

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// plainSocket and secureSocket are what URLs of unix sockets begin with, the second
// of those that speak TLS.
const (
	plainSocket  = "unix://"
	secureSocket = "unixs://"
)

// SocketPath returns the file of a URL of a unix socket, and whether it is one. As in
// etcd, unix://localhost:12345 is the file localhost:12345 in the working directory,
// unix:///run/kvnode is /run/kvnode, and unixs speaks TLS.
func SocketPath(s string) (path string, ok bool) {
	for _, scheme := range []string{plainSocket, secureSocket} {
		if path, ok = strings.CutPrefix(s, scheme); ok {
			return path, true
		}
	}
	return "", false
}

// ParseURL returns the address in a URL of the form http://host:port, or https.
func ParseURL(s string) (host, port string, err error) {
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

// Wildcard reports whether host means all interfaces, so no peer can dial it.
func Wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// SpeaksTLS reports whether a URL asks for TLS. That of a unix socket is not parsed:
// what SocketPath takes for a file is no URL to package net/url if it is called 100%,
// and would be served in plain text.
func SpeaksTLS(s string) bool {
	if _, ok := SocketPath(s); ok {
		return strings.HasPrefix(s, secureSocket)
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https"
}

// IsLocal reports whether only this machine reaches a URL.
func IsLocal(s string) bool {
	if _, ok := SocketPath(s); ok {
		return true
	}
	host, _, err := ParseURL(s)
	return err == nil && IsLoopback(host)
}

// IsLoopback reports whether a host is this machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Address returns what to listen on for a URL.
func Address(s string) (network, addr string, err error) {
	if path, ok := SocketPath(s); ok {
		return "unix", path, nil
	}
	host, port, err := ParseURL(s)
	return "tcp", net.JoinHostPort(host, port), err
}

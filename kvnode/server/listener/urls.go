package listener

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// The schemes of unix sockets, without and with TLS.
const (
	plainSocket  = "unix://"
	secureSocket = "unixs://"
)

// SocketPath returns the file of a unix socket's URL. ok is false for other URLs. As in
// etcd, unix://localhost:12345 is the file localhost:12345 in the working directory.
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

// Wildcard reports whether host means all interfaces. A peer cannot dial it.
func Wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// SpeaksTLS reports whether a URL asks for TLS. It does not parse the URL of a unix
// socket: net/url rejects file names such as 100%, which must not mean plain text.
func SpeaksTLS(s string) bool {
	if _, ok := SocketPath(s); ok {
		return strings.HasPrefix(s, secureSocket)
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https"
}

// IsLocal reports whether a URL is reachable from this machine alone.
func IsLocal(s string) bool {
	if _, ok := SocketPath(s); ok {
		return true
	}
	host, _, err := ParseURL(s)
	return err == nil && IsLoopback(host)
}

// IsLoopback reports whether host is a name or an address of the loopback interface.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Address returns the network and the address to listen on for a URL.
func Address(s string) (network, addr string, err error) {
	if path, ok := SocketPath(s); ok {
		return "unix", path, nil
	}
	host, port, err := ParseURL(s)
	return "tcp", net.JoinHostPort(host, port), err
}

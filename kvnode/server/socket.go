package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// plainSocket and secureSocket are what URLs of unix sockets begin with, the second
// of those that speak TLS.
const (
	plainSocket  = "unix://"
	secureSocket = "unixs://"
)

// socketPath returns the file of a URL of a unix socket, and whether it is one. As in
// etcd, unix://localhost:12345 is the file localhost:12345 in the working directory,
// unix:///run/kvnode is /run/kvnode, and unixs speaks TLS.
func socketPath(s string) (path string, ok bool) {
	for _, scheme := range []string{plainSocket, secureSocket} {
		if path, ok = strings.CutPrefix(s, scheme); ok {
			return path, true
		}
	}
	return "", false
}

// maxSocketPath is what an address of a unix socket has room for on Linux.
const maxSocketPath = 107

// checkClientURLs checks the form of URLs that clients may use, which may be unix
// sockets.
func checkClientURLs(field string, urls, known []string) (errs []error) {
	rest := slices.DeleteFunc(slices.Clone(urls), func(s string) bool {
		path, ok := socketPath(s)
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
	onlySockets := !slices.ContainsFunc(c.Node.ClientURLs, func(s string) bool { _, ok := socketPath(s); return !ok })
	if onlySockets && len(c.Node.Cluster) > 1 {
		errs = append(errs, fmt.Errorf("Node.ClientURLs %s: other members cannot pass requests on to a unix socket; add one that is http or https",
			strings.Join(c.Node.ClientURLs, ",")))
	}
	return errs
}

// address returns what to listen on for a URL.
func address(s string) (network, addr string, err error) {
	if path, ok := socketPath(s); ok {
		return "unix", path, nil
	}
	host, port, err := parseURL(s)
	return "tcp", net.JoinHostPort(host, port), err
}

// listenSocket listens on a unix socket. A file that a process which was killed has
// left there makes room; one on which somebody listens does not.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, errors.Join(err, statErr)
	}
	conn, dialErr := new(net.Dialer).DialContext(ctx, "unix", path)
	if dialErr == nil {
		_ = conn.Close() // nothing was said
	}
	if !errors.Is(dialErr, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return lc.Listen(ctx, "unix", path)
}

// Package listener has the listeners of a server: the URLs that it listens on, TLS, and the
// choice between gRPC and HTTP/1 on one port. Package connlimit limits the cost of the
// connections.
//
//   - A connection on a URL with TLS is closed if it speaks plain text.
//   - A connection on a client URL has HandshakeTime for TLS and its first bytes.
//   - A request over plain HTTP that names an unknown host is rejected, except on metrics URLs.
package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Wrapper wraps the listener of a URL. secure is set if the URL asks for TLS.
type Wrapper func(l net.Listener, secure bool) net.Listener

// Bare is the Wrapper that returns l itself.
func Bare(l net.Listener, _ bool) net.Listener { return l }

// Listen binds a listener for each URL. Errors name the field of the configuration.
func Listen(ctx context.Context, field string, urls []string, wrap Wrapper) (bound []net.Listener, errs []error) {
	for _, s := range urls {
		listener, err := listenAt(ctx, s)
		if err != nil {
			errs = append(errs, listenError(field, s, err))
			continue
		}
		bound = append(bound, wrap(listener, SpeaksTLS(s)))
	}
	return bound, errs
}

func listenAt(ctx context.Context, url string) (net.Listener, error) {
	network, addr, err := Address(url)
	switch {
	case err != nil:
		return nil, err
	case network == "unix":
		return listenSocket(ctx, addr)
	default:
		return new(net.ListenConfig).Listen(ctx, network, addr)
	}
}

// listenError names the field to change.
func listenError(field, url string, err error) error {
	what := "port"
	if _, ok := SocketPath(url); ok {
		what = "file"
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s %s: the "+what+" is taken, by another process or by another URL of this one: %w", field, url, err)
	}
	return fmt.Errorf("%s %s: cannot listen: %w", field, url, err)
}

// CloseAll closes listeners that have accepted nothing.
func CloseAll(all []net.Listener) {
	for _, l := range all {
		_ = l.Close()
	}
}

// merged is the listener that Merge returns.
type merged struct {
	all      []net.Listener // immutable
	accepted chan accepted
	closed   chan struct{}
	closing  sync.Once
	wg       sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// Merge returns one listener that accepts the connections of all.
func Merge(all []net.Listener) net.Listener {
	if len(all) == 1 {
		return all[0]
	}
	m := &merged{all: all, accepted: make(chan accepted), closed: make(chan struct{})}
	for _, l := range all {
		m.wg.Go(func() { m.serve(l) })
	}
	return m
}

func (m *merged) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		select {
		case m.accepted <- accepted{conn, err}:
		case <-m.closed:
			if conn != nil {
				_ = conn.Close() // an error means that it is closed
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (m *merged) Accept() (net.Conn, error) {
	select {
	case a := <-m.accepted:
		return a.conn, a.err
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It waits for the goroutines of all listeners.
func (m *merged) Close() error {
	m.closing.Do(func() {
		close(m.closed)
		CloseAll(m.all)
		m.wg.Wait()
	})
	return nil
}

// Addr implements net.Listener. It returns the address of the first listener.
func (m *merged) Addr() net.Addr { return m.all[0].Addr() }

// listenSocket listens on a unix socket. It replaces a socket file that a killed
// process has left behind, but not one on which a process listens.
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
		_ = conn.Close() // nothing was sent
	}
	if !errors.Is(dialErr, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return lc.Listen(ctx, "unix", path)
}

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

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// listeners are all that a server has. They are bound before anything else is
// done, so that a taken port costs nothing.
type listeners struct {
	peer    net.Listener
	client  []net.Listener
	http    []net.Listener
	metrics []net.Listener
}

// bind binds all listeners of c, or none. Those for HTTP speak TLS themselves, if
// their URL says so; the entrance and the node do it for the others.
func bind(ctx context.Context, c *Config, clients, pages wrapper) (*listeners, error) {
	l := &listeners{}
	var errs []error
	given := func(field string, listener net.Listener, urls []string, wrap wrapper) []net.Listener {
		if listener != nil {
			return []net.Listener{wrap(listener, speaksTLS(urls[0]))}
		}
		bound, err := listen(ctx, field, urls, wrap)
		errs = append(errs, err...)
		return bound
	}
	peers := given("ListenPeerURLs", c.Node.Listener, c.ListenPeerURLs, bare)
	l.client = given("ListenClientURLs", c.ClientListener, c.ListenClientURLs, clients)
	l.http = given("ListenClientHTTPURLs", c.HTTPListener, c.ListenClientHTTPURLs, pages)
	l.metrics = given("ListenMetricsURLs", nil, c.ListenMetricsURLs, pages)
	if len(errs) > 0 {
		closeListeners(peers)
		l.close()
		return nil, errors.Join(errs...)
	}
	l.peer = merge(peers)
	return l, nil
}

// wrapper makes a listener speak what its URL says.
type wrapper func(l net.Listener, secure bool) net.Listener

func bare(l net.Listener, _ bool) net.Listener { return l }

func listen(ctx context.Context, field string, urls []string, wrap wrapper) (bound []net.Listener, errs []error) {
	for _, s := range urls {
		listener, err := listenAt(ctx, s)
		if err != nil {
			errs = append(errs, listenError(field, s, err))
			continue
		}
		bound = append(bound, wrap(listener, speaksTLS(s)))
	}
	return bound, errs
}

func listenAt(ctx context.Context, url string) (net.Listener, error) {
	network, addr, err := address(url)
	switch {
	case err != nil:
		return nil, err
	case network == "unix":
		return listenSocket(ctx, addr)
	default:
		return new(net.ListenConfig).Listen(ctx, network, addr)
	}
}

// listenError says which field to change.
func listenError(field, url string, err error) error {
	what := "port"
	if _, ok := socketPath(url); ok {
		what = "file"
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s %s: the "+what+" is taken, by another process or by another URL of this one: %w", field, url, err)
	}
	return fmt.Errorf("%s %s: cannot listen: %w", field, url, err)
}

// close closes what the server still owns; the node closes peer once it runs.
func (l *listeners) close() {
	if l.peer != nil {
		_ = l.peer.Close()
	}
	closeListeners(l.client)
	closeListeners(l.http)
	closeListeners(l.metrics)
}

// closeListeners is for the way out after an error: nothing was accepted, so
// nothing can be lost.
func closeListeners(all []net.Listener) {
	for _, l := range all {
		_ = l.Close()
	}
}

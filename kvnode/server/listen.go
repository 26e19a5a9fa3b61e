package server

import (
	"context"
	"errors"
	"net"

	"github.com/leaderlease/go/kvnode/server/internal/listener"
)

// listeners are all listeners of a server. Start binds them first, so that a port in use is
// reported early.
type listeners struct {
	peer    net.Listener
	client  []net.Listener
	http    []net.Listener
	metrics []net.Listener
	redis   []net.Listener
}

// bind binds all listeners of c, or none. Listeners for HTTP and Redis speak TLS themselves. The
// gRPC server and the node do TLS for the other connections.
func bind(ctx context.Context, c *Config, clients *listener.Endpoint) (*listeners, error) {
	l := &listeners{}
	var errs []error
	bindField := func(field string, own net.Listener, urls []string, wrap listener.Wrapper) []net.Listener {
		if own != nil {
			return []net.Listener{wrap(own, listener.SpeaksTLS(urls[0]))}
		}
		bound, err := listener.Listen(ctx, field, urls, wrap)
		errs = append(errs, err...)
		return bound
	}
	peers := bindField("ListenPeerURLs", c.Node.Listener, c.ListenPeerURLs, listener.Bare)
	l.client = bindField("ListenClientURLs", c.ClientListener, c.ListenClientURLs, clients.ForGRPC)
	l.http = bindField("ListenClientHTTPURLs", c.HTTPListener, c.ListenClientHTTPURLs, clients.ForPages)
	l.metrics = bindField("ListenMetricsURLs", nil, c.ListenMetricsURLs, clients.ForPages)
	l.redis = bindField("ListenRedisURLs", nil, c.ListenRedisURLs, clients.ForRedis)
	if len(errs) > 0 {
		listener.CloseAll(peers)
		l.close()
		return nil, errors.Join(errs...)
	}
	l.peer = listener.Merge(peers)
	return l, nil
}

// close closes the listeners. Once the node runs, it closes peer itself.
func (l *listeners) close() {
	if l.peer != nil {
		_ = l.peer.Close()
	}
	listener.CloseAll(l.client)
	listener.CloseAll(l.http)
	listener.CloseAll(l.metrics)
	listener.CloseAll(l.redis)
}

// maxPendingClients overrides the default of package listener in tests.
var maxPendingClients int

func newEndpoint(c *Config, certs certificates) *listener.Endpoint {
	return listener.NewEndpoint(listener.Config{
		TLS: certs.client, MaxOpenStreams: c.MaxOpenStreams, OnlyGRPC: len(c.ListenClientHTTPURLs) > 0,
		MaxPending: maxPendingClients, Logger: c.named(),
	})
}

package listener

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// AnyHost is the name that stands for all hosts, as in etcd.
const AnyHost = "*"

// HostCheck rejects requests over plain HTTP that name an unknown host. A web page can
// rebind its own name to the address of this member; the browser then takes the member
// for the page's origin and sends requests that name that host. Over TLS the
// certificate has no such name, and a browser reaches no unix socket. gRPC needs no
// check: browsers speak HTTP/2 over TLS only. The listeners for metrics show no data
// and answer any name.
type HostCheck struct {
	names map[string]bool // immutable, as this block
	log   *slog.Logger
	warn  *rate.Sometimes
}

// NewHostCheck returns a check that allows the hosts of urls, names, and localhost.
func NewHostCheck(urls, names []string, log *slog.Logger) *HostCheck {
	h := &HostCheck{names: map[string]bool{"localhost": true}, log: log, warn: &rate.Sometimes{First: 10, Interval: time.Second}}
	for _, s := range urls {
		if u, err := url.Parse(s); err == nil {
			h.names[plainName(u.Hostname())] = true
		}
	}
	for _, name := range names {
		h.names[plainName(name)] = true
	}
	return h
}

// plainName returns the form in which two names are compared.
func plainName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Allows reports whether a request that names host is answered. A browser always sends
// a host, and that of a rebound page is a name, never an address.
func (h *HostCheck) Allows(host string) bool {
	name := host
	if before, _, err := net.SplitHostPort(host); err == nil {
		name = before
	}
	name = plainName(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	_, err := netip.ParseAddr(name)
	return name == "" || err == nil || h.names[name] || h.names[AnyHost]
}

// Wrap returns a handler that calls next for requests over TLS and unix sockets, and
// for others if Allows does.
func (h *HostCheck) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(trustedTransport{}) == true || h.Allows(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		name := transport.Shown(r.Host)
		h.warn.Do(func() {
			h.log.Warn("HTTP request for an unknown host is refused", "host", name, "remote", r.RemoteAddr)
		})
		http.Error(w, fmt.Sprintf("kvnode: %s is not a host name of this member, and without TLS a web page could use a name of its own. "+
			"If the name is right, add it to the host whitelist, or use https.", name), http.StatusMisdirectedRequest)
	})
}

// trustedTransport is the key of the value that noteTransport adds.
type trustedTransport struct{}

// noteTransport adds to the context of a connection whether it speaks TLS or is a unix
// socket, so that no rebound page can have made it. net/http does not know that a sniffed
// connection speaks TLS.
func noteTransport(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, trustedTransport{}, speaksTLS(c) || c.LocalAddr().Network() == "unix")
}

// speaksTLS looks through the layers of a connection.
func speaksTLS(c net.Conn) bool {
	for {
		if _, ok := c.(*tls.Conn); ok {
			return true
		}
		above, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		c = above.NetConn()
	}
}

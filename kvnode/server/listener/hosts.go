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

	"github.com/leaderlease/go/kvnode"
)

// AnyHost is the name that stands for all, as in etcd.
const AnyHost = "*"

// Hosts are the names that requests over plain HTTP to the client URLs may be for.
// Those to listen-metrics-urls, which show no data, may be for any: monitoring asks by
// names of its own. A web page whose name its owner has rebound to this machine asks
// for that name: the browser takes it for one origin with what it reads here, so
// nothing else gives it away. Over TLS the certificate has no such name, and to unix
// sockets no browser goes. gRPC needs no check: a browser speaks HTTP/2 over TLS only,
// and no page makes it begin a connection in any other way.
type Hosts struct {
	names    map[string]bool // immutable, as all of this
	log      *slog.Logger
	complain *rate.Sometimes
}

// NewHosts returns the hosts of urls, names, and localhost.
func NewHosts(urls, names []string, log *slog.Logger) *Hosts {
	h := &Hosts{names: map[string]bool{"localhost": true}, log: log, complain: &rate.Sometimes{First: 10, Interval: time.Second}}
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

// plainName returns a name in the one form in which it is compared.
func plainName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Knows reports whether a request for host may be answered. One that names none is
// no browser's, and pages have no address for a name.
func (h *Hosts) Knows(host string) bool {
	name := host
	if before, _, err := net.SplitHostPort(host); err == nil {
		name = before
	}
	name = plainName(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	_, err := netip.ParseAddr(name)
	return name == "" || err == nil || h.names[name] || h.names[AnyHost]
}

// Only serves pages to requests over TLS and unix sockets, and to others if they
// are for a host that is known.
func (h *Hosts) Only(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(outOfReach{}) == true || h.Knows(r.Host) {
			pages.ServeHTTP(w, r)
			return
		}
		name := kvnode.Shown(r.Host)
		h.complain.Do(func() {
			h.log.Warn("HTTP request for an unknown host is refused", "host", name, "remote", r.RemoteAddr)
		})
		http.Error(w, fmt.Sprintf("kvnode: %s is no host that this member knows itself by, and without TLS a web page could ask for it under a name of its own. "+
			"If it is one, add the name to its host whitelist, or ask over https.", name), http.StatusMisdirectedRequest)
	})
}

// outOfReach is the key of what noteReach notes.
type outOfReach struct{}

// noteReach notes whether a connection came in a way that a page whose name was
// rebound has not. Of one that something was read from already net/http does not
// know that it speaks TLS.
func noteReach(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, outOfReach{}, speaksTLSNow(c) || c.LocalAddr().Network() == "unix")
}

// speaksTLSNow looks through the layers of a connection.
func speaksTLSNow(c net.Conn) bool {
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

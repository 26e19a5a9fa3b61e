package server

import (
	"cmp"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/etcdapi"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// Config configures a Server. The zero value, with defaults, is a cluster of one on
// etcd's ports.
type Config struct {
	// Node is the member's part. Defaults besides its own: Name is default, DataDir the
	// name and ".kvnode", Cluster this member alone, Listener one on ListenPeerURLs,
	// ClientURLs where the server listens. The Server makes its PeerTLS.
	Node kvnode.Config
	// API is the part of the etcd API. The Server fills in NodeVersion, WaitingMethods and
	// Metrics, and adds to LeaderDial.
	API etcdapi.Config

	// URLs are http://host:port, or https://host:port with TLS, those for clients
	// unix:///path or unixs:///path, too. Those to listen on
	// default to etcd's ports on localhost, metrics to none; AdvertisePeerURLs to
	// ListenPeerURLs. Client URLs serve HTTP besides gRPC, unless
	// ListenClientHTTPURLs are given, which serve it instead.
	ListenPeerURLs       []string
	ListenClientURLs     []string
	ListenClientHTTPURLs []string
	ListenMetricsURLs    []string
	AdvertisePeerURLs    []string

	// ClientListener and HTTPListener, and Node.Listener, take the place of the URLs
	// to listen on, so that tests need not guess free ports. The Server closes
	// them, also when Start fails.
	ClientListener, HTTPListener net.Listener

	// ClientTLS is for URLs with https to listen on for clients, HTTP and metrics
	// included, PeerTLS for peers. Their zero values mean plain text.
	ClientTLS, PeerTLS tlsconf.Config
	// TLSMinVersion and TLSMaxVersion, TLSCipherSuites and SelfSignedYears are for
	// both: see tlsconf.Config. Defaults: TLS1.2, none, Go's and 1.
	TLSMinVersion, TLSMaxVersion string
	TLSCipherSuites              []string
	SelfSignedYears              int
	// AllowPlaintext permits plain text on other addresses than those of loopback.
	AllowPlaintext bool
	// HostWhitelist are names besides localhost and the hosts of its URLs that
	// requests over HTTP without TLS may be for; * is all. Default: none. All: web
	// pages can read and write what the browser that shows them can reach.
	HostWhitelist []string

	// MaxOpenStreams bounds the requests under way on all connections of clients that speak gRPC, and
	// those for the API over HTTP. A connection may have as many as all leave free, and is refused more. Default:
	// 65,536. More: up to 40 KB of memory for each. Fewer: clients that wait or watch
	// a lot are refused.
	MaxOpenStreams int
	// AutoCompactionMode is periodic, the default, or revision, and
	// AutoCompactionRetention what compaction leaves: see autocompact.Parse.
	// Default: 0, which means no compaction.
	AutoCompactionMode, AutoCompactionRetention string
	// InitialCorruptCheck compares the keys of a member that has run before with
	// those of the others, by hashes, before it serves clients. If they differ, and
	// most members do not agree with this one, the server fails with ErrCorrupt.
	InitialCorruptCheck bool
	// CorruptCheckTime is how often the leader compares all members, and raises the
	// alarm CORRUPT for those that differ, from 1 s. Each member hashes all of its
	// keys for that. Default: never. With CompactHashCheck it does so each
	// CompactHashCheckTime, too. Default of that: 1 min.
	CorruptCheckTime     time.Duration
	CompactHashCheck     bool
	CompactHashCheckTime time.Duration
	// Keepalive is what is asked of clients' connections.
	Keepalive Keepalive

	// ExtensiveMetrics adds latency histograms of gRPC requests, at the cost of
	// some CPU time on each.
	ExtensiveMetrics bool
	// EnablePprof serves /debug/pprof/ where JSON is served.
	EnablePprof bool
	// DisableLeasePage leaves /lease out, the page that shows the cluster's leases, and
	// what members tell each other for it.
	DisableLeasePage bool
	// DisableGateway leaves etcd's JSON gateway out.
	DisableGateway bool

	// Spell puts what errors say of fields of Config into the words of whoever has filled it
	// in, such as flags: see status.Report.Reword. Default: they stay as they are.
	Spell func(text string) string
	// Logger receives what an operator should know, nothing per request. It is that of
	// Node and API, too. It must not block: the raft loop logs, and a member stops serving
	// while it waits for its log. Default: none.
	Logger *slog.Logger
	// DroppedLogLines returns the number of lines that Logger has dropped, for
	// kvnode_log_lines_dropped_total. Default: always 0.
	DroppedLogLines func() uint64
}

// Keepalive configures pings on clients' connections, with etcd's names and
// defaults.
type Keepalive struct {
	// MinTime is how often a client may ping. Default: 5 s.
	MinTime time.Duration
	// Interval is after how much silence the server pings. Default: 2 h.
	// Negative: never.
	Interval time.Duration
	// Timeout is how long it waits for the answer before it closes the
	// connection. Default: 20 s.
	Timeout time.Duration
}

// named is the logger whose lines say which member has written them. The packages
// that it is handed to add their component.
func (c *Config) named() *slog.Logger { return c.Logger.With("member", c.Node.Name) }

// log is the logger of this package.
func (c *Config) log() *slog.Logger { return c.named().With("component", "server") }

// Default is the configuration that WithDefaults makes of the zero value.
func Default() Config { return Config{}.WithDefaults() }

const (
	defaultName         = "default"
	defaultPeerURL      = "http://localhost:2380"
	defaultClientURL    = "http://localhost:2379"
	defaultOpenStreams  = 65_536
	defaultHashEvery    = time.Minute
	defaultPingEvery    = 5 * time.Second
	defaultPingInterval = 2 * time.Hour
	defaultPingTimeout  = 20 * time.Second

	// never is what gRPC understands as no pings.
	never = time.Duration(math.MaxInt64)
)

// WithDefaults returns a copy of c with every unset field filled in.
func (c Config) WithDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	set(&c.Node.Name, defaultName)
	set(&c.Node.DataDir, c.Node.Name+".kvnode")
	c.Node.Logger, c.API.Logger = c.Logger, c.named() // the node adds its name itself
	c.Node, c.API = c.Node.WithDefaults(), c.API.WithDefaults()
	set(&c.MaxOpenStreams, defaultOpenStreams)
	set(&c.AutoCompactionMode, CompactPeriodic)
	set(&c.AutoCompactionRetention, "0")
	set(&c.CompactHashCheckTime, defaultHashEvery)
	set(&c.Keepalive.MinTime, defaultPingEvery)
	set(&c.Keepalive.Interval, defaultPingInterval)
	set(&c.Keepalive.Timeout, defaultPingTimeout)

	setURLs(&c.ListenPeerURLs, scheme(listenerURL(c.Node.Listener, defaultPeerURL), &c.PeerTLS))
	setURLs(&c.ListenClientURLs, scheme(listenerURL(c.ClientListener, defaultClientURL), &c.ClientTLS))
	if c.HTTPListener != nil {
		setURLs(&c.ListenClientHTTPURLs, scheme(listenerURL(c.HTTPListener, ""), &c.ClientTLS))
	}
	setURLs(&c.AdvertisePeerURLs, c.ListenPeerURLs...)
	setURLs(&c.Node.ClientURLs, c.ListenClientURLs...)
	c.tlsDefaults()
	if len(c.Node.Cluster) == 0 {
		c.Node.Cluster = []kvnode.Member{{Name: c.Node.Name, PeerURLs: c.AdvertisePeerURLs}}
	}
	return c
}

func set[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

func setURLs(field *[]string, urls ...string) {
	if len(*field) == 0 {
		*field = urls
	}
}

// listenerURL returns the URL of a listener, or other if there is none.
func listenerURL(l net.Listener, other string) string {
	if l == nil {
		return other
	}
	return "http://" + l.Addr().String()
}

// node returns the node's part, with what the server has for it if that has begun.
func (c *Config) node(peers net.Listener) kvnode.Config {
	node := c.Node
	node.Listener, node.KeepTrace = peers, !c.DisableLeasePage
	return node
}

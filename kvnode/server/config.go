package server

import (
	"cmp"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/server/internal/etcdapi"
)

// Config configures a Server. The zero value, with defaults, is a cluster of one on etcd's ports.
type Config struct {
	// Node configures the member. In addition to its own defaults, Name is "default", DataDir is
	// the name and ".kvnode", Cluster is this member alone, Listener listens on ListenPeerURLs,
	// and ClientURLs are the URLs that the server listens on. The Server sets its PeerTLS
	// and KeepTrace.
	Node kvnode.Config
	// API configures the etcd API. The Server sets NodeVersion, WaitingMethods and Metrics, and
	// adds to MemberDialOptions.
	API etcdapi.Config

	// URLs are http://host:port, or https://host:port with TLS. All but peer URLs may also be unix:///path or
	// unixs:///path. ListenPeerURLs and ListenClientURLs default to etcd's ports on localhost, ListenMetricsURLs and
	// ListenRedisURLs to none, and AdvertisePeerURLs to ListenPeerURLs. ListenClientURLs serve gRPC and HTTP. If
	// ListenClientHTTPURLs are set, only those serve HTTP. ListenRedisURLs serve the Redis protocol: see package redis.
	ListenPeerURLs       []string
	ListenClientURLs     []string
	ListenClientHTTPURLs []string
	ListenMetricsURLs    []string
	ListenRedisURLs      []string
	AdvertisePeerURLs    []string

	// ClientListener, HTTPListener and Node.Listener replace the URLs to listen on, so that tests
	// need not guess free ports. The Server closes them, also when Start fails.
	ClientListener, HTTPListener net.Listener

	// ClientTLS is for all URLs with TLS to listen on, except those for peers, which have PeerTLS. Zero values
	// mean plain text.
	ClientTLS, PeerTLS tlsconf.Config
	// TLSMinVersion, TLSMaxVersion, TLSCipherSuites and SelfSignedYears apply to both: see
	// tlsconf.Config. Defaults: TLS1.2, none, Go's and 1.
	TLSMinVersion, TLSMaxVersion string
	TLSCipherSuites              []string
	SelfSignedYears              int
	// AllowPlaintext permits plain text on addresses other than loopback.
	AllowPlaintext bool
	// HostWhitelist are host names that HTTP requests without TLS may name, except on ListenMetricsURLs, in
	// addition to localhost and the hosts of the URLs; * permits all. With *, a web page can read and
	// write everything that its browser can reach. Default: none.
	HostWhitelist []string

	// MaxOpenStreams limits the requests in progress on all gRPC connections of clients, and those of the
	// gateways. A request is rejected if the number on its connection (twice that for a
	// watch or a wait) plus the number on all connections would exceed it. Each takes up to 40 KB of memory.
	// A low limit rejects clients that wait or watch a lot. Default: 65,536.
	MaxOpenStreams int
	// AutoCompactionMode is CompactPeriodic, the default, or CompactRevision. AutoCompactionRetention
	// is the history that a compaction keeps, as in etcd: a number of revisions in revision mode, and
	// a number of hours or a duration in periodic mode. Default: 0, no compaction.
	AutoCompactionMode, AutoCompactionRetention string
	// InitialCorruptCheck makes a member that has run before compare the hash of its keys with
	// the other members', before it serves clients. If they differ, and no majority agrees with
	// this member, the server fails with ErrCorrupt.
	InitialCorruptCheck bool
	// CorruptCheckTime is the interval, of at least 1 s, at which the leader compares all members.
	// It raises the alarm CORRUPT for those that differ. For each comparison each member hashes all
	// its keys. Default: never. With CompactHashCheck the interval is at most CompactHashCheckTime,
	// by default a minute.
	CorruptCheckTime     time.Duration
	CompactHashCheck     bool
	CompactHashCheckTime time.Duration
	// Keepalive configures pings on clients' connections.
	Keepalive Keepalive

	// ExtensiveMetrics adds latency histograms of gRPC requests, at some CPU time per request.
	ExtensiveMetrics bool
	// EnablePprof serves /debug/pprof/ on the client HTTP URLs.
	EnablePprof bool
	// DisableLeasePage turns off the page /lease, which shows the cluster's leases, and the
	// traffic between members for it.
	DisableLeasePage bool
	// DisableGateway turns off the JSON gateway.
	DisableGateway bool

	// Spell rewrites the names of Config's fields in Report's errors, for example as flags: see
	// status.Report.Reword. Default: no change.
	Spell func(text string) string
	// Logger receives what an operator should know, and no lines per request. Node and API use
	// it, too. It must not block: the raft loop calls it, and the member does not serve meanwhile.
	// Default: none.
	Logger *slog.Logger
	// DroppedLogLines returns the number of lines that Logger has dropped, for
	// kvnode_log_lines_dropped_total. Default: always 0.
	DroppedLogLines func() uint64
}

// Keepalive configures pings on clients' connections, with etcd's names and
// defaults.
type Keepalive struct {
	// MinTime is the minimum time between two pings of a client. Default: 5 s.
	MinTime time.Duration
	// Interval is the silence after which the server pings. Negative: never. Default: 2 h.
	Interval time.Duration
	// Timeout is how long the server waits for the answer before it closes the connection.
	// Default: 20 s.
	Timeout time.Duration
}

// named returns the logger with the member's name. The packages that receive it add their
// component.
func (c *Config) named() *slog.Logger { return c.Logger.With("member", c.Node.Name) }

// log returns the logger of this package.
func (c *Config) log() *slog.Logger { return c.named().With("component", "server") }

// Default returns the zero value with defaults.
func Default() Config { return Config{}.WithDefaults() }

const (
	defaultName         = "default"
	defaultPeerURL      = "http://localhost:2380"
	defaultClientURL    = "http://localhost:2379"
	defaultOpenStreams  = 65_536
	defaultHashEvery    = time.Minute
	defaultPingMinTime  = 5 * time.Second
	defaultPingInterval = 2 * time.Hour
	defaultPingTimeout  = 20 * time.Second

	// never makes gRPC send no pings.
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
	set(&c.Keepalive.MinTime, defaultPingMinTime)
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

// listenerURL returns the URL of a listener, or other if l is nil.
func listenerURL(l net.Listener, other string) string {
	if l == nil {
		return other
	}
	return "http://" + l.Addr().String()
}

// node returns the node's configuration with peers as its listener.
func (c *Config) node(peers net.Listener) kvnode.Config {
	node := c.Node
	node.Listener, node.KeepTrace = peers, !c.DisableLeasePage
	return node
}

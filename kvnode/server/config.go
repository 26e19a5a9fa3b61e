package server

import (
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/autocompact"
	"github.com/leaderlease/go/kvnode/etcdapi"
	"github.com/leaderlease/go/kvnode/tlsconf"
	"github.com/leaderlease/go/leaderlease/clock"
)

// Config configures a Server. The fields mean what the flags of kvnode serve
// mean, and errors name those. The zero value, with defaults, is a cluster of
// one on etcd's ports.
type Config struct {
	// Name names this member in InitialCluster. Default: default.
	Name string
	// DataDir is made if it is missing. Default: the name and ".kvnode".
	DataDir string

	// URLs are http://host:port, or https://host:port with TLS, those for clients
	// unix:///path or unixs:///path, too. Those to listen on
	// default to etcd's ports on localhost, metrics to none; those to advertise to
	// where the server listens. Client URLs serve HTTP besides gRPC, unless
	// ListenClientHTTPURLs are given, which serve it instead.
	ListenPeerURLs       []string
	ListenClientURLs     []string
	ListenClientHTTPURLs []string
	ListenMetricsURLs    []string
	AdvertisePeerURLs    []string
	AdvertiseClientURLs  []string

	// PeerListener, ClientListener and HTTPListener take the place of the URLs
	// to listen on, so that tests need not guess free ports. The Server closes
	// them, also when Start fails.
	PeerListener, ClientListener, HTTPListener net.Listener

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

	// InitialCluster has all members that make the cluster, this one included.
	// Default: this one alone.
	InitialCluster []kvnode.Member
	// InitialClusterToken sets clusters with equal members apart. Default:
	// etcd-cluster, as in etcd.
	InitialClusterToken string
	// Existing says to join a cluster instead of making one.
	Existing bool

	// HeartbeatInterval defaults to 100 ms, ElectionTimeout to 1 s. The election
	// timeout must be 5 intervals at least and 50 s at most, as in etcd.
	HeartbeatInterval, ElectionTimeout time.Duration
	// SnapshotCount and CatchUpEntries: see kvnode.Config. Defaults: 10,000 and
	// 5,000, as in etcd.
	SnapshotCount, CatchUpEntries uint64

	// ReadMode is how a read is made linearizable that does not say. Default:
	// kvnode.ReadLease.
	ReadMode kvnode.ReadMode
	// The lease's parameters: see leaderlease.Config. Zero means its defaults.
	LeaseDuration, MaxClockSkew time.Duration
	MaxDriftPPM                 int
	DisableLease                bool
	Clock                       clock.Clock

	// MaxRequestBytes bounds one request. Default: 1.5 MiB. Larger: one request
	// holds up all others for longer.
	MaxRequestBytes int
	// MaxTxnOps bounds the operations of one transaction. Default: 128.
	MaxTxnOps int
	// MaxConcurrentStreams bounds the requests under way on one connection.
	// Default: no bound, as in etcd. A client that has reached it waits.
	MaxConcurrentStreams uint32
	// MaxOpenStreams bounds those on all connections of clients that speak gRPC. A
	// connection may have as many as all leave free, and is refused more. Default:
	// 65,536. More: up to 40 KB of memory for each. Fewer: clients that wait or watch
	// a lot are refused.
	MaxOpenStreams int
	// QuotaBytes bounds the size of the store; beyond it only deletions and
	// compaction are accepted. Default: 2 GiB. Negative: no bound.
	QuotaBytes int64
	// AutoCompactionMode is periodic, the default, or revision, and
	// AutoCompactionRetention what compaction leaves: see autocompact.Parse.
	// Default: 0, which means no compaction.
	AutoCompactionMode, AutoCompactionRetention string
	// WatchProgressInterval is after how much silence a watcher that asked for it
	// is told how far it is, from 100 ms. Default: 10 min.
	WatchProgressInterval time.Duration
	// TTLCheckpoint is how often what is left of a TTL lease longer than that is
	// replicated: see kvnode.Config. Default: never; the feature gate
	// LeaseCheckpoint makes it 5 min, as in etcd.
	TTLCheckpoint time.Duration
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
	// LaxReconfig permits changes of membership that may cost the quorum.
	LaxReconfig bool
	// Keepalive is what is asked of clients' connections.
	Keepalive Keepalive

	// WarnRequest is how long a request may take before the log says so, WarnApply how long
	// one that only reads may, or an entry of the log to be applied. Default: 300 ms and
	// 100 ms, as in etcd.
	WarnRequest, WarnApply time.Duration
	// ExtensiveMetrics adds latency histograms of gRPC requests, at the cost of
	// some CPU time on each.
	ExtensiveMetrics bool
	// EnablePprof serves /debug/pprof/ where JSON is served.
	EnablePprof bool
	// DisableGateway leaves etcd's JSON gateway out.
	DisableGateway bool

	// Logger receives what an operator should know, nothing per request.
	// Default: none.
	Logger *slog.Logger
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
func (c *Config) named() *slog.Logger { return c.Logger.With("member", c.Name) }

// log is the logger of this package.
func (c *Config) log() *slog.Logger { return c.named().With("component", "server") }

// Default is the configuration that WithDefaults makes of the zero value.
func Default() Config { return Config{}.WithDefaults() }

const (
	defaultName         = "default"
	defaultPeerURL      = "http://localhost:2380"
	defaultClientURL    = "http://localhost:2379"
	defaultToken        = "etcd-cluster"
	defaultSnapshot     = 10_000
	defaultCatchUp      = 5_000
	defaultHeartbeat    = 100 * time.Millisecond
	defaultElection     = time.Second
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
	set(&c.Name, defaultName)
	set(&c.DataDir, c.Name+".kvnode")
	set(&c.InitialClusterToken, defaultToken)
	set(&c.HeartbeatInterval, defaultHeartbeat)
	set(&c.ElectionTimeout, defaultElection)
	set(&c.SnapshotCount, defaultSnapshot)
	set(&c.CatchUpEntries, defaultCatchUp)
	set(&c.ReadMode, kvnode.ReadLease)
	set(&c.MaxRequestBytes, etcdapi.DefaultMaxRequestBytes)
	set(&c.MaxTxnOps, etcdapi.DefaultMaxTxnOps)
	set(&c.MaxConcurrentStreams, etcdapi.DefaultMaxConcurrentStreams)
	set(&c.MaxOpenStreams, defaultOpenStreams)
	set(&c.QuotaBytes, etcdapi.DefaultQuotaBytes)
	set(&c.WatchProgressInterval, etcdapi.DefaultWatchProgress)
	set(&c.WarnRequest, etcdapi.DefaultWarnRequest)
	set(&c.WarnApply, etcdapi.DefaultWarnApply)
	set(&c.AutoCompactionMode, autocompact.Periodic)
	set(&c.AutoCompactionRetention, "0")
	set(&c.CompactHashCheckTime, defaultHashEvery)
	set(&c.Keepalive.MinTime, defaultPingEvery)
	set(&c.Keepalive.Interval, defaultPingInterval)
	set(&c.Keepalive.Timeout, defaultPingTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}

	setURLs(&c.ListenPeerURLs, scheme(listenerURL(c.PeerListener, defaultPeerURL), &c.PeerTLS))
	setURLs(&c.ListenClientURLs, scheme(listenerURL(c.ClientListener, defaultClientURL), &c.ClientTLS))
	if c.HTTPListener != nil {
		setURLs(&c.ListenClientHTTPURLs, scheme(listenerURL(c.HTTPListener, ""), &c.ClientTLS))
	}
	setURLs(&c.AdvertisePeerURLs, c.ListenPeerURLs...)
	setURLs(&c.AdvertiseClientURLs, c.ListenClientURLs...)
	c.tlsDefaults()
	if len(c.InitialCluster) == 0 {
		c.InitialCluster = []kvnode.Member{{Name: c.Name, PeerURLs: c.AdvertisePeerURLs}}
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

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

// node returns the node's part of a configuration.
func (c *Config) node(peers net.Listener) kvnode.Config {
	return kvnode.Config{
		Name:            c.Name,
		DataDir:         c.DataDir,
		Cluster:         c.InitialCluster,
		Token:           c.InitialClusterToken,
		Existing:        c.Existing,
		ClientURLs:      c.AdvertiseClientURLs,
		Listener:        peers,
		TickInterval:    c.HeartbeatInterval,
		ElectionTimeout: c.ElectionTimeout,
		LeaseDuration:   c.LeaseDuration,
		MaxClockSkew:    c.MaxClockSkew,
		MaxDriftPPM:     c.MaxDriftPPM,
		DisableLease:    c.DisableLease,
		Clock:           c.Clock,
		ReadMode:        c.ReadMode,
		MaxRequestBytes: c.MaxRequestBytes,
		SnapshotCount:   c.SnapshotCount,
		WarnApply:       c.WarnApply,
		TTLCheckpoint:   c.TTLCheckpoint,
		LaxReconfig:     c.LaxReconfig,
		CatchUpEntries:  c.CatchUpEntries,
		Logger:          c.Logger,
	}
}

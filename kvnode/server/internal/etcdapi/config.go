package etcdapi

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/leaderlease/go/internal/problems"
	"github.com/leaderlease/go/kvnode"
)

// Version is the etcd version that the API implements. Clients parse it.
const Version = "3.7.0"

// Defaults of Config. They are etcd's where etcd has the option.
const (
	DefaultMaxTxnOps            = 128
	DefaultMaxConcurrentStreams = math.MaxUint32
	DefaultMaxInFlight          = 10_000
	DefaultMaxReplyBytes        = 256 << 20
	DefaultQuotaBytes           = 2 << 30
	DefaultWatchProgress        = 10 * time.Minute
	DefaultWarnRequest          = 300 * time.Millisecond
)

// Config configures an API. A zero field takes its default.
type Config struct {
	// MaxTxnOps limits the compares of a transaction, and the operations of each branch. Default:
	// 128.
	MaxTxnOps int
	// MaxRequestBytes limits one request. gRPC accepts messages up to 512 KiB larger, so that
	// clients get the node's error instead of gRPC's. Default: the node's.
	MaxRequestBytes int
	// MaxConcurrentStreams limits the concurrent requests on one connection. A client above the
	// limit waits without an error. Default: no limit, as in etcd.
	MaxConcurrentStreams uint32
	// MaxInFlight limits the unary requests in progress on all connections. A low limit rejects
	// bursts that the node could serve. A high limit lets a stalled node collect requests until
	// memory runs out. Default: 10,000.
	MaxInFlight int
	// MaxReplyBytes limits the encoded replies above 32 KiB that are not written yet, on all connections. Watch
	// responses and snapshots do not count. A reply above the limit is sent alone. A reply without room
	// waits up to RequestTimeout, then fails. With a low limit, large reads wait for each other. Default: 256 MiB.
	MaxReplyBytes int
	// RequestTimeout limits how long a request waits for the cluster, and then how long its reply
	// waits for memory (MaxReplyBytes). A client's shorter deadline wins. A short timeout fails requests
	// that an election only delays. With a long one, clients learn late that a member
	// has no quorum. Default: the node's.
	RequestTimeout time.Duration
	// WaitingMethods are the full names of unary methods that wait for other clients, such as
	// Lock. They have no timeout and do not count towards MaxInFlight, or they could keep out the
	// request that ends their wait. Default: none.
	WaitingMethods []string
	// WaitForLeader makes requests without a deadline wait for a leader until RequestTimeout, as
	// requests with a deadline do. By default they fail with ErrNoLeader after one election
	// timeout without a leader, unless they are proposed already.
	WaitForLeader bool
	// ElectionTimeout is the cluster's. Streams that require a leader end after three election
	// timeouts without one. Default: the node's.
	ElectionTimeout time.Duration
	// QuotaBytes limits the size of the store. Above it the member raises the NOSPACE alarm and
	// rejects writes that may grow the store. Negative means no limit. Default: 2 GiB.
	QuotaBytes int64
	// WatchProgressInterval is the interval after which a watcher with ProgressNotify that got no
	// events in it gets a progress notification. At least 100 ms. Each stream adds up to a tenth, at random.
	// Default: 10 min.
	WatchProgressInterval time.Duration
	// A request is logged as slow above WarnRequest (default: 300 ms, as in etcd), one that only reads also
	// above WarnRead (default: WarnApply of the node).
	WarnRequest, WarnRead time.Duration
	// TrailersOnDemand sends trailers only to requests with the metadata x-lease-read, including
	// the value auto. Trailers take about a tenth of the CPU time that client and server spend on
	// reading one key. Default: trailers for all reads.
	TrailersOnDemand bool
	// NodeVersion is kvnode's own version, for /version. Optional.
	NodeVersion string
	// MemberDialOptions are gRPC options for connections to the client URLs of other members. Default: plain text.
	MemberDialOptions []grpc.DialOption
	// Metrics counts gRPC calls. Optional. The caller registers it with Prometheus.
	Metrics *CallMetrics
	// Logger receives problems, snapshots and slow requests. Default: none.
	Logger *slog.Logger
}

// WithDefaults returns a copy of c with every unset field filled in, except the fields that
// default to the node's.
func (c Config) WithDefaults() Config {
	c.MaxTxnOps = cmp.Or(c.MaxTxnOps, DefaultMaxTxnOps)
	c.MaxConcurrentStreams = cmp.Or(c.MaxConcurrentStreams, DefaultMaxConcurrentStreams)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.MaxReplyBytes = cmp.Or(c.MaxReplyBytes, DefaultMaxReplyBytes)
	c.QuotaBytes = cmp.Or(c.QuotaBytes, DefaultQuotaBytes)
	c.WatchProgressInterval = cmp.Or(c.WatchProgressInterval, DefaultWatchProgress)
	c.WarnRequest = cmp.Or(c.WarnRequest, DefaultWarnRequest)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// withNodeDefaults fills in the fields that default to the node's.
func (c Config) withNodeDefaults(node kvnode.Config) Config {
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, node.MaxRequestBytes)
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, node.ElectionTimeout)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, node.RequestTimeout)
	c.WarnRead = cmp.Or(c.WarnRead, node.WarnApply)
	return c
}

// Validate reports everything that is wrong with c. It expects c after WithDefaults.
func (c Config) Validate() error {
	var bad problems.List
	bad.If(c.MaxTxnOps < 1 || c.MaxTxnOps > math.MaxInt32, "MaxTxnOps %d must be from 1 to %d", c.MaxTxnOps, math.MaxInt32)
	bad.If(c.WatchProgressInterval < MinWatchProgress,
		"WatchProgressInterval %v must be at least %v", c.WatchProgressInterval, MinWatchProgress)
	bad.If(c.WarnRequest < 0, "WarnRequest %v must not be negative", c.WarnRequest)
	bad.If(c.WarnRead < 0, "WarnRead %v must not be negative", c.WarnRead)
	bad.If(c.RequestTimeout < 0, "RequestTimeout %v must not be negative", c.RequestTimeout)
	bad.If(c.ElectionTimeout < 0, "ElectionTimeout %v must not be negative", c.ElectionTimeout)
	bad.If(c.MaxRequestBytes < 0, "MaxRequestBytes %d must not be negative", c.MaxRequestBytes)
	bad.If(c.MaxInFlight < 0, "MaxInFlight %d must not be negative", c.MaxInFlight)
	bad.If(c.MaxReplyBytes < 0, "MaxReplyBytes %d must not be negative", c.MaxReplyBytes)
	return errors.Join(bad...)
}

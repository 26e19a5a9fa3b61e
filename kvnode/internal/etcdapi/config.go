package etcdapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/etcdapi/callmetrics"
)

// Version is the version of etcd whose API this is. Clients parse it.
const Version = "3.7.0"

// Defaults of Config, etcd's own where etcd has one.
const (
	DefaultMaxTxnOps            = 128
	DefaultMaxConcurrentStreams = math.MaxUint32
	DefaultMaxInFlight          = 10_000
	DefaultMaxReplyBytes        = 256 << 20
	DefaultQuotaBytes           = 2 << 30
	DefaultWatchProgress        = 10 * time.Minute
	DefaultWarnRequest          = 300 * time.Millisecond
)

// Config configures an API. A field that is zero has its default.
type Config struct {
	// MaxTxnOps bounds the compares, and the operations of either branch, of a
	// transaction. Default: 128.
	MaxTxnOps int
	// MaxRequestBytes bounds one request. A message may be 512 KiB larger, so that
	// the node's own refusal is what clients see. Default: the node's.
	MaxRequestBytes int
	// MaxConcurrentStreams bounds the requests under way on one connection.
	// Default: no bound, as in etcd: who has reached one waits, and is not told.
	MaxConcurrentStreams uint32
	// MaxInFlight bounds the unary requests under way on all connections. Too
	// low refuses bursts that the node could serve; too high lets a stalled
	// node collect requests until memory ends. Default: 10,000.
	MaxInFlight int
	// MaxReplyBytes bounds the replies of more than 32 KiB that are encoded and not
	// written yet, on all connections; what is larger passes alone. Others wait for
	// RequestTimeout, and are refused then. Fewer: large reads wait for each other.
	// More: as many bytes of memory. Default: 256 MiB.
	MaxReplyBytes int
	// RequestTimeout bounds how long a request waits for the cluster, whatever deadline
	// its client gave, and then how long its reply waits for room. Shorter: requests
	// fail in an election that would have ended. Longer: where there is no quorum
	// clients learn later that they should ask another member. Default: the node's.
	RequestTimeout time.Duration
	// WaitingMethods are the full names of unary methods that wait for other
	// clients. Like streams they are not bounded in time, nor by MaxInFlight: those
	// that wait could keep out the request that ends their wait. Default: none.
	WaitingMethods []string
	// WaitForLeader makes requests without a deadline wait for a leader until RequestTimeout, as
	// those with one do. Default: they fail after an election timeout without one, if nothing was done.
	WaitForLeader bool
	// ElectionTimeout is that of the cluster. Streams that require a leader are cut
	// when there was none for three of them. Default: the node's.
	ElectionTimeout time.Duration
	// QuotaBytes bounds the size of the store: beyond it the NOSPACE alarm is
	// raised, and writes that may grow it are refused. Negative means no bound.
	// Default: 2 GiB.
	QuotaBytes int64
	// WatchProgressInterval is after how long without an event a watcher that
	// asked for it is told of progress, at least 100 ms. Streams wait up to a
	// tenth longer, each its own time. Default: 10 min.
	WatchProgressInterval time.Duration
	// WarnRequest is how long a request may take before the log says so, WarnApply how
	// long one that only reads may. Default: 300 ms, as in etcd, and the node's.
	WarnRequest, WarnApply time.Duration
	// TrailersOnDemand sends trailers only to requests that carry the metadata
	// x-lease-read, be it auto. They are about a tenth of the processor time that
	// client and server together spend on a read of one key. Default: to all.
	TrailersOnDemand bool
	// NodeVersion is kvnode's own version, for /version. Optional.
	NodeVersion string
	// LeaderDial are the options by which another member's client URLs are dialled,
	// for what only the leader can answer. Default: plain text.
	LeaderDial []grpc.DialOption
	// Metrics counts requests if it is set. The caller registers it.
	Metrics *callmetrics.Metrics
	// Logger receives panics, snapshots and alarms, never reads. Default: none.
	Logger *slog.Logger
}

// WithDefaults returns a copy of c whose unset fields have their defaults, but for those
// that are the node's.
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

// withNodeDefaults fills in what is the node's.
func (c Config) withNodeDefaults(node kvnode.Config) Config {
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, node.MaxRequestBytes)
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, node.ElectionTimeout)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, node.RequestTimeout)
	c.WarnApply = cmp.Or(c.WarnApply, node.WarnApply)
	return c
}

// Validate reports everything that is wrong with c, which has its defaults.
func (c Config) Validate() error {
	var bad problems
	bad.If(c.MaxTxnOps < 1 || c.MaxTxnOps > math.MaxInt32, "MaxTxnOps %d must be from 1 to %d", c.MaxTxnOps, math.MaxInt32)
	bad.If(c.WatchProgressInterval < MinWatchProgress,
		"WatchProgressInterval %v must be %v at least", c.WatchProgressInterval, MinWatchProgress)
	bad.If(c.WarnRequest < 0, "WarnRequest %v must not be negative", c.WarnRequest)
	bad.If(c.WarnApply < 0, "WarnApply %v must not be negative", c.WarnApply)
	bad.If(c.RequestTimeout < 0, "RequestTimeout %v must not be negative", c.RequestTimeout)
	bad.If(c.ElectionTimeout < 0, "ElectionTimeout %v must not be negative", c.ElectionTimeout)
	bad.If(c.MaxRequestBytes < 0, "MaxRequestBytes %d must not be negative", c.MaxRequestBytes)
	bad.If(c.MaxInFlight < 0, "MaxInFlight %d must not be negative", c.MaxInFlight)
	bad.If(c.MaxReplyBytes < 0, "MaxReplyBytes %d must not be negative", c.MaxReplyBytes)
	return errors.Join(bad...)
}

// problems collects what is wrong with a configuration, so that one error reports all of it.
type problems []error

// If adds an error if wrong. The format gives the value and its limit.
func (p *problems) If(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

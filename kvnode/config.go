package kvnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/leaderlease/go/internal/problems"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/raftwal/fs"
)

// Member is one member of the initial cluster.
type Member = memberdir.Member

// Config configures a Node. Name, DataDir, Cluster and Listener are required.
type Config struct {
	// Name is the name of this member, unique in Cluster.
	Name string
	// DataDir holds everything that the member must keep. Start creates it.
	DataDir string
	// Cluster is the initial cluster, with this member. Token distinguishes clusters with equal members.
	// Without Existing, the IDs of a new DataDir are derived from both; the cluster ID of a sole member is
	// random. Later starts compare both with DataDir, and use the URLs in Cluster to dial and admit members.
	Cluster []Member
	Token   string
	// Existing is set for a member that was added to an existing cluster.
	Existing bool
	// ClientURLs are published to the other members.
	ClientURLs []string

	// Listener accepts connections of peers. The Node closes it.
	Listener net.Listener
	// Dial connects to a peer. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Supervisor notifies the peers when this process has exited. Default: none.
	Supervisor Supervisor
	// PeerTLS encrypts the connections between members, over Listener and Dial. If it requires
	// certificates, it also authenticates the other end; otherwise any program can claim to be any
	// member. Either all members have it or none. Default: plain text.
	PeerTLS *tlsconf.Source

	// TickInterval is the time between heartbeats. Default: 50 ms. With longer intervals the lease needs
	// longer promises, and a dead leader is replaced later.
	TickInterval time.Duration
	// ElectionTimeout is the time without a message of the leader after which a follower campaigns.
	// Default: 1 s. It must be at least 5 ticks.
	ElectionTimeout time.Duration
	// LeaseDuration, MaxClockSkew and MaxDriftPPM are those of leaderlease.Config. Lease returns the first two,
	// with defaults.
	LeaseDuration time.Duration
	MaxClockSkew  time.Duration
	MaxDriftPPM   int
	// IgnoreClosed turns off the suspicion of a leader with closed connections: it only counts as
	// silent then.
	IgnoreClosed bool
	// IgnoreSilence turns off the suspicion of a leader that is silent for much longer than usual: this
	// member waits for ElectionTimeout then.
	IgnoreSilence bool
	// DisableLease turns off this member's own lease: as leader it serves reads by quorum rounds. It still promises
	// to other leaders.
	DisableLease bool
	// Clock is the lease clock. Default: clock.System.
	Clock clock.Clock
	// LeaseTrace is the file to which the events of the lease are appended. At 64 MiB it is renamed, and overwrites
	// the file that was renamed before: see docs/lease-traces.md. A write error ends the trace. Default: none.
	LeaseTrace string
	// KeepTrace keeps the newest events of the lease in 1.3 MB of memory, for Node.Trace.
	KeepTrace bool

	// LaxReconfig permits changes of membership after which too few voters may be up.
	LaxReconfig bool

	// ReadMode is the meaning of ReadAuto. Default: ReadLease.
	ReadMode ReadMode
	// RequestTimeout limits requests whose context has no deadline. Default: 5 s and two election
	// timeouts.
	RequestTimeout time.Duration
	// MaxRequestBytes limits one command. Default: 1.5 MiB.
	MaxRequestBytes int
	// MaxProposals limits the number of pending proposals, MaxProposalBytes their size. Defaults: 5,000
	// and 64 MiB.
	MaxProposals     int
	MaxProposalBytes int64
	// SnapshotCount is the number of entries after which a checkpoint is made at the latest. With a smaller number,
	// a restart applies fewer entries again, and the disk writes more. Default: 10,000.
	SnapshotCount uint64
	// CatchUpEntries or CatchUpBytes, whichever is more, stay in the log after a checkpoint, so that a follower that
	// was down gets entries instead of a snapshot. Defaults: 5,000 entries and 16 MiB. If CatchUpEntries is not 5,000,
	// CatchUpBytes defaults to 0.
	CatchUpEntries uint64
	CatchUpBytes   int64
	// TTLCheckpoint is the interval at which the remaining time of longer TTL leases is replicated, so that a new
	// leader continues from it. Default: never, as in etcd.
	TTLCheckpoint time.Duration
	// WarnApply: an entry that takes longer to apply is logged, because all later entries wait for it. Default: 100
	// ms, as in etcd.
	WarnApply time.Duration
	// SegmentSize is that of raftwal.Config.
	SegmentSize int64

	// Logger logs each change that matters to an operator. Its handler must not block: the raft loop
	// logs, and serves nothing while it waits. Default: none.
	Logger *slog.Logger

	// For tests.
	walFS                fs.FS // of the log
	wrapBackend          func(store.Backend) store.Backend
	maxUncommitted       int   // default: maxUncommittedBytes
	newestClusterVersion int64 // makes the member like one of an older version; default: that of this version
}

// Defaults of CatchUpEntries and CatchUpBytes. A busy cluster writes 5,000 small entries in 1.3 s, less than a
// restart takes, so a number of bytes is kept as well.
const (
	catchUpEntries = 5_000
	catchUpBytes   = 16 << 20
)

// WithDefaults returns a copy of c with defaults; those of the lease's parameters are in Lease.
func (c Config) WithDefaults() Config {
	c.TickInterval = cmp.Or(c.TickInterval, 50*time.Millisecond)
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 5*time.Second+2*c.ElectionTimeout)
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, 3<<19)
	c.MaxProposals = cmp.Or(c.MaxProposals, 5_000)
	c.MaxProposalBytes = cmp.Or(c.MaxProposalBytes, 64<<20)
	c.SnapshotCount = cmp.Or(c.SnapshotCount, 10_000)
	if c.CatchUpEntries == 0 || c.CatchUpEntries == catchUpEntries {
		c.CatchUpEntries, c.CatchUpBytes = catchUpEntries, cmp.Or(c.CatchUpBytes, catchUpBytes)
	}
	c.WarnApply = cmp.Or(c.WarnApply, 100*time.Millisecond)
	c.Token = cmp.Or(c.Token, memberdir.DefaultToken)
	c.ReadMode = cmp.Or(c.ReadMode, ReadLease)
	c.maxUncommitted = cmp.Or(c.maxUncommitted, maxUncommittedBytes)
	c.newestClusterVersion = cmp.Or(c.newestClusterVersion, store.ClusterVersionNewest)
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// MaxRequestLimit is the maximum of MaxRequestBytes: the transport accepts a message with an entry of that size.
const MaxRequestLimit = transport.MaxMessageBytes - 1<<20

// minElectionTicks leaves a few heartbeats for the lease, which is shorter than the election timeout.
const minElectionTicks = 5

// Validate reports all errors of c, which must have defaults. Start reports those of the lease's parameters.
func (c Config) Validate() error {
	var bad problems.List
	bad.If(c.DataDir == "", "no data directory")
	bad.If(c.Listener == nil, "no listener for peers")
	bad.If(c.TickInterval <= 0, "tick interval %v must be positive", c.TickInterval)
	bad.If(c.TickInterval > 0 && c.electionTicks() < minElectionTicks,
		"election timeout %v must be at least %d tick intervals of %v", c.ElectionTimeout, minElectionTicks, c.TickInterval)
	bad.If(c.MaxRequestBytes < 0 || c.MaxRequestBytes > MaxRequestLimit,
		"max request bytes %d must be in [1, %d]", c.MaxRequestBytes, MaxRequestLimit)
	bad.If(c.MaxProposals < 0 || c.MaxProposalBytes < int64(c.MaxRequestBytes),
		"max proposals %d must be positive, and max proposal bytes %d at least max request bytes %d", c.MaxProposals, c.MaxProposalBytes, c.MaxRequestBytes)
	bad.If(c.ReadMode > ReadSerializable, "read mode %d is unknown", c.ReadMode)
	bad = append(bad, c.owner().Validate()...)
	if len(bad) > 0 {
		return fmt.Errorf("kvnode: invalid config: %w", errors.Join(bad...))
	}
	return nil
}

func (c *Config) electionTicks() int { return int(c.ElectionTimeout / c.TickInterval) }

// maxPromise returns the longest promise that this member makes.
func (c *Config) maxPromise() time.Duration {
	return time.Duration(c.electionTicks()-1) * c.TickInterval
}

// self returns this member's entry of the initial cluster.
func (c *Config) self() Member { return c.owner().Self() }

// CheckPeerURLs reports whether the peer URLs of one member are valid in number, length and form.
func CheckPeerURLs(urls []string) error { return membership.CheckURLs(urls) }

// bounded limits ctx to RequestTimeout if it has no deadline.
func (c *Config) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.RequestTimeout, ErrTimeout)
}

const (
	// With a clock that counts suspension, the default LeaseDuration is the longer of shortPromise and leastBeats
	// heartbeats, or longer if the margin that is set needs it, but less than ElectionTimeout (Lease). A shorter
	// lease is lost when heartbeats are late. With a longer one, a dead leader is replaced later.
	shortPromise = 250 * time.Millisecond
	leastBeats   = 5
	// wideMargin is the default margin of a short lease, but at most two fifths of it: see docs/clocks.md.
	wideMargin = 100 * time.Millisecond
	// formerTick is the default TickInterval of former versions. Their members promise at most ElectionTimeout -
	// formerTick.
	formerTick = 100 * time.Millisecond
)

// Lease returns the duration of the promises that this member requests as leader, and the margin before
// their end in which its lease serves no reads; c must have defaults.
//
// By default promises are short, since a dead leader is replaced when the promise to it has ended. With a clock
// that does not count the time for which the machine is suspended, duration and margin are as long as in former
// versions.
//
// If only one of LeaseDuration and MaxClockSkew is set, the default of the other one fits it.
func (c *Config) Lease() (duration, margin time.Duration) {
	if duration = c.LeaseDuration; duration == 0 {
		// tick is the TickInterval that a former version had with this ElectionTimeout.
		tick := max(c.TickInterval, min(formerTick, c.ElectionTimeout/minElectionTicks))
		wanted := min(c.MaxClockSkew, c.ElectionTimeout) // the margin that is set, 0 if none is
		duration = min(max(c.ElectionTimeout.Truncate(tick)-tick, wanted+2*c.TickInterval), c.maxPromise())
		if clock.Describe(c.Clock).CountsSuspend {
			duration = min(duration, max(shortPromise, leastBeats*c.TickInterval, wanted*5/2))
		}
	}
	if margin = c.MaxClockSkew; margin == 0 {
		margin = max(duration/5, min(duration*2/5, wideMargin, duration-2*c.TickInterval))
	}
	return duration, margin
}

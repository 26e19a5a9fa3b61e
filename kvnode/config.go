package kvnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
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
	// Name is this member's, unique in Cluster.
	Name string
	// DataDir holds everything the member must keep. Start makes it.
	DataDir string
	// Cluster is the initial cluster, this member included. Token sets clusters
	// of equal members apart. The IDs of cluster and members are derived from
	// both. They matter when the data directory is made.
	Cluster []Member
	Token   string
	// Existing says that the cluster exists and this member was added to it.
	Existing bool
	// ClientURLs are published to the other members.
	ClientURLs []string

	// Listener accepts connections of peers. The Node closes it.
	Listener net.Listener
	// Dial replaces TCP, for tests.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Guardian waits for the end of this process, and tells the peers of it. Default: nobody
	// does, and they wait until what they have promised has ended.
	Guardian Guardian
	// PeerTLS secures all connections between members, over Listener and Dial, and
	// binds each to the member that it comes from. Either all members have it or
	// none. Default: plain text, in which anybody can be any member.
	PeerTLS *tlsconf.Source

	// TickInterval is the time between heartbeats. Default: 50 ms. Shorter: more messages.
	// Longer: the lease needs longer promises, and a leader that dies is replaced later.
	TickInterval time.Duration
	// ElectionTimeout is how long followers wait for the heartbeat of a leader of whom they
	// hear nothing else. Default: 1 s, at least 5 ticks.
	ElectionTimeout time.Duration
	// LeaseDuration, MaxClockSkew and MaxDriftPPM are leaderlease.Config's. Zero means what
	// Lease returns, and leaderlease's default of the last.
	LeaseDuration time.Duration
	MaxClockSkew  time.Duration
	MaxDriftPPM   int
	// IgnoreClosed has this member wait for an election timeout's silence, instead of
	// suspecting a leader whose connections have ended.
	IgnoreClosed bool
	// IgnoreSilence has this member wait for an election timeout's silence, instead of
	// suspecting a leader that is silent for much longer than it has been of late.
	IgnoreSilence bool
	// DisableLease makes every linearizable read take a quorum round.
	DisableLease bool
	// Clock is the lease clock. Default: clock.System.
	Clock clock.Clock
	// LeaseTrace is the file that what the lease decides is appended to, of at most 64
	// MiB and as much again in one beside it: see docs/lease-traces.md. A write that
	// fails ends the trace. Default: none.
	LeaseTrace string
	// KeepTrace keeps the newest events of the same for Node.Trace, in 1.3 MB.
	KeepTrace bool

	// LaxReconfig permits changes of membership after which too few voters may be
	// up.
	LaxReconfig bool

	// ReadMode is what ReadAuto means. Default: ReadLease.
	ReadMode ReadMode
	// RequestTimeout bounds requests whose context has no deadline. Default: 5 s
	// and two election timeouts.
	RequestTimeout time.Duration
	// MaxRequestBytes bounds one command. Default: 1.5 MiB.
	MaxRequestBytes int
	// MaxProposals bounds the proposals under way, MaxProposalBytes their size.
	// Default: 5,000 and 64 MiB.
	MaxProposals     int
	MaxProposalBytes int64
	// SnapshotCount is after how many entries at most a checkpoint is made; the
	// members take turns. Default: 10,000. Fewer: shorter restarts, more disk
	// writes.
	SnapshotCount uint64
	// CatchUpEntries and CatchUpBytes say how much of the log stays after a checkpoint: the
	// larger of the two, so that a follower that was away is sent log entries instead of a
	// whole snapshot. Defaults: 5,000 entries and 16 MiB; no bytes if CatchUpEntries is set.
	CatchUpEntries uint64
	CatchUpBytes   int64
	// TTLCheckpoint is how often what is left of a TTL lease longer than that is
	// replicated, so that a new leader need not begin its time anew. Default:
	// never, as in etcd.
	TTLCheckpoint time.Duration
	// WarnApply is how long an entry may take to be applied before the log says so. While
	// it is, all others wait. Default: 100 ms, as in etcd.
	WarnApply time.Duration
	// SegmentSize is raftwal's. Default: its own.
	SegmentSize int64

	// Logger receives a line for each change that an operator cares about. Its handler must not
	// block: the raft loop logs, and a member stops serving while it waits for its log.
	// Default: none.
	Logger *slog.Logger

	// walFS replaces the directory of the log, for tests whose disk fails.
	walFS fs.FS
	// wrapBackend replaces what the store writes to, likewise.
	wrapBackend func(store.Backend) store.Backend
	// maxUncommitted replaces maxUncommittedBytes, for tests.
	maxUncommitted int
	// newestFormat makes a member of an older version in tests. Default: what this
	// version knows.
	newestFormat int64
}

// Defaults of what stays in the log for followers. The entries alone are written in 1.3 s
// where values are small, which is less than a restart takes.
const (
	catchUpEntries = 5_000
	catchUpBytes   = 16 << 20
)

// WithDefaults returns a copy of c with every unset optional field filled in.
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
	c.newestFormat = cmp.Or(c.newestFormat, store.FormatNewest)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// MaxRequestLimit bounds MaxRequestBytes, so that an entry is within what the
// transport takes.
const MaxRequestLimit = transport.MaxMessageBytes - 1<<20

// minElectionTicks leaves room for a lease of a few heartbeats below the
// election timeout.
const minElectionTicks = 5

// Validate reports everything that is wrong with c, and changes nothing. It
// expects defaults to be filled in. What concerns the lease, leaderlease.New
// reports.
func (c Config) Validate() error {
	var bad problems
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

// maxPromise is the longest promise that this member makes. Whatever it asks for itself, it grants what
// members of former versions ask for.
func (c *Config) maxPromise() time.Duration {
	return time.Duration(c.electionTicks()-1) * c.TickInterval
}

// self returns this member's entry of the initial cluster.
func (c *Config) self() Member {
	return c.owner().Self()
}

// CheckPeerURLs reports what is wrong with the peer URLs of one member: their number, their
// length, or their form.
func CheckPeerURLs(urls []string) error {
	if err := peerurl.Check(urls); err != nil {
		return fmt.Errorf("kvnode: %w", err)
	}
	return nil
}

// bounded bounds ctx by RequestTimeout if it has no deadline.
func (c *Config) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.RequestTimeout, ErrTimeout)
}

// problems collects what is wrong with a configuration, so that one error reports all of it.
type problems []error

// If adds an error if wrong. The format gives the value and its limit.
func (p *problems) If(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

const (
	// shortPromise is the least default of LeaseDuration, and leastBeats how many heartbeats it
	// has at least. Shorter: a lease that is lost each time heartbeats are late. Longer: a
	// leader that dies is replaced later.
	shortPromise = 250 * time.Millisecond
	leastBeats   = 5
	// wideMargin is what is left for steps of clocks, stops of machines that nobody tells of and
	// errors of readings, together with a rate that is wrong: docs/clocks.md.
	wideMargin = 100 * time.Millisecond
	// formerTick is the default of TickInterval of former versions. Their members make no
	// promise that is longer than their own, which was an election timeout less that.
	formerTick = 100 * time.Millisecond
)

// Lease returns the duration of the promises that this member asks for as leader, and the
// margin in which its lease serves no read. It expects the other defaults to be filled in.
//
// By default promises are short: a leader that dies is replaced when the promise to it has
// ended. Where the clock does not count the time in which the machine sleeps they are as
// long as in former versions, so that there is more left for what the clock does not tell.
//
// Who gives one of the two gets another that goes with it, wherever former versions had one:
// a wide margin has a longer promise, and a short promise a margin that leaves two heartbeats.
func (c *Config) Lease() (duration, margin time.Duration) {
	if duration = c.LeaseDuration; duration == 0 {
		tick, most := max(c.TickInterval, min(formerTick, c.ElectionTimeout/minElectionTicks)), min(c.MaxClockSkew, c.ElectionTimeout)
		duration = max(c.ElectionTimeout.Truncate(tick)-tick, most+2*c.TickInterval)
		// Ticks that are longer than formerTick, or do not go into the timeout, leave less of it.
		duration = min(duration, c.ElectionTimeout.Truncate(c.TickInterval)-c.TickInterval)
		if c.countsSuspend() {
			duration = min(duration, max(shortPromise, leastBeats*c.TickInterval, most*5/2))
		}
	}
	if margin = c.MaxClockSkew; margin == 0 {
		margin = max(duration/5, min(duration*2/5, wideMargin, duration-2*c.TickInterval))
	}
	return duration, margin
}

// countsSuspend is so of clocks that are exact besides: those in steps of milliseconds are
// stand-ins that do not count it.
func (c *Config) countsSuspend() bool {
	own := c.Clock
	if own == nil {
		own = clock.System()
	}
	return clock.Describe(own).CountsSuspend
}

package leaderlease

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// Config describes one Raft group's lease. Raft and TickInterval are required;
// the rest has defaults that suit most groups. All nodes of a group should use
// the same durations.
type Config struct {
	// Raft is the configuration the node was, or will be, started with.
	// PreVote, CheckQuorum and StepDownOnRemoval must be on, ReadOnlyOption
	// must be ReadOnlySafe. Storage tells whether this is a restart.
	Raft *raft.Config
	// TickInterval is the time between two calls of Tick.
	TickInterval time.Duration

	// Duration is how long voters promise to help nobody else, from the moment
	// a heartbeat was sent. Default: (ElectionTick−1)·TickInterval, the longest
	// that delays no fail-over. Shorter: more reads fall back to ReadIndex when
	// heartbeats are late. Longer: see AllowLongDuration.
	Duration time.Duration
	// MaxClockSkew bounds how far the clocks of any two nodes drift apart over
	// one Duration (assumption A1); reads stop that long before the lease ends.
	// Default: Duration/5. Too small: stale reads if clocks are worse than
	// claimed. Too large: fewer reads under lease.
	MaxClockSkew time.Duration
	// MaxDriftPPM is the rate error of any one node's clock, in parts per
	// million, that MaxClockSkew must cover. Default: 83,333, chrony's default
	// maximum slew rate. Lower it only together with what slews your clocks.
	MaxDriftPPM int
	// MaxPromise is the longest promise this node makes to any leader. Default:
	// Duration. Below the leader's Duration this node grants nothing. It is also how
	// long the node waits after a restart. With Promises the node waits for the saved
	// duration instead: the longest promise that the process before was asked for, and
	// Duration at least. MaxPromise may then be as long as any member's Duration ever was.
	MaxPromise time.Duration
	// AllowLongDuration permits a Duration beyond (ElectionTick−1)·TickInterval:
	// voters are then still bound when they would campaign, which delays every
	// fail-over.
	AllowLongDuration bool
	// Promises remembers the longest promise across restarts; raftwal.Log is one,
	// PromiseFile another. Optional: without it, MaxPromise must not be lowered from one
	// start of a node to the next. A node that has run with it must run with it always:
	// what it promised without is not there to be read.
	Promises PromiseStore
	// ConfIndex is the index up to which the ConfState that Storage returns has every
	// configuration change, if that is beyond its snapshot. It is for embedders whose
	// state machine outlives restarts, makes that ConfState, and skips the changes it
	// has when raft hands them out again: ApplyConfState is not expected for them. The
	// log may end before it. Default: 0, every change handed out is told of. Too low:
	// no lease (StatusConfPending). Too high: leases under voters that do not count any more,
	// or a misuse, where a change up to it is told of with others.
	ConfIndex uint64

	// Clock is this node's lease clock (assumption A2). Default: clock.System. It
	// is read by every reader, and with the lease locked: it must not block and
	// must not call the Lease.
	Clock clock.Clock
	// Send sends messages to peers without blocking. Optional: with it, a
	// leader answers forwarded reads from its lease; without, they take a
	// quorum round. It is called from within Incoming and Ready, and from whatever
	// else may bring a lease about (Tick, ApplyConfState,
	// SetDiskStalled), in the goroutine that has called them, and
	// without a lock: it may call every method that does not block, but Ready. It is
	// never called from Applied, nor from within a read.
	Send func(msgs []*raftpb.Message)
	// Notify is called whenever ReadRequests has something to hand to raft, with
	// the lease locked: it must not block and must not call the Lease. Optional,
	// for loops that do not select on the channel.
	Notify func()
	// Logger receives a line for each lease gained or lost, for each fault of the
	// clock and each misuse. Its handler runs in a goroutine of the Lease, without a
	// lock, and one line at a time: a handler that blocks, for ever even, stops no method
	// of the Lease, and may call all of them. Up to 64 lines wait for it; later ones are dropped,
	// and the next line has their number as dropped_lines. The goroutine runs only while
	// lines wait, and Close waits for it for a second at most. Default: none. Safety
	// never depends on it.
	Logger *slog.Logger
	// Tracer receives what the Lease decides and is told, on the raft side. A *leasetrace.Trace
	// is of one Lease alone, and New refuses one that another Lease has. Default: none.
	// Package leasetrace writes traces to a file and judges them.
	Tracer Tracer
	// Disabled turns lease reads off on this node: every Read takes ReadIndex.
	// The node still promises, so others' leases work.
	Disabled bool
}

// PromiseStore keeps one duration on stable storage. Only the Lease calls it: New in
// its caller's goroutine, and while the node runs another goroutine, one call at a time.
// Close waits for that, so it must not wait for who calls Close.
type PromiseStore interface {
	// LoadMaxPromise returns what was saved last, or 0.
	LoadMaxPromise() (time.Duration, error)
	// SaveMaxPromise returns once d is durable, in the place of what was saved before,
	// also if that was d: New saves what it has loaded, or what is longer. After an error
	// the old one or the new one is there.
	SaveMaxPromise(d time.Duration) error
}

// defaultDriftPPM is chrony's default maxslewrate: 83,333.333 ppm.
const defaultDriftPPM = 83_333

// WithDefaults returns a copy of c with every unset optional field filled in.
func (c Config) WithDefaults() Config {
	if c.Duration == 0 {
		c.Duration = max(c.electionFloor(), 0)
	}
	if c.MaxClockSkew == 0 {
		c.MaxClockSkew = c.Duration / 5
	}
	if c.MaxDriftPPM == 0 {
		c.MaxDriftPPM = defaultDriftPPM
	}
	if c.MaxPromise == 0 {
		c.MaxPromise = c.Duration
	}
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// params returns the core's part of the configuration.
func (c *Config) params() core.Params {
	return core.Params{
		ID:              c.Raft.ID,
		Duration:        c.Duration,
		MaxClockSkew:    c.MaxClockSkew,
		TransferTimeout: time.Duration(c.Raft.ElectionTick) * c.TickInterval,
	}
}

// electionFloor is the least time from a heartbeat's arrival to the campaign of
// a follower that ticks regularly.
func (c *Config) electionFloor() time.Duration {
	if c.Raft == nil {
		return 0
	}
	return time.Duration(c.Raft.ElectionTick-1) * c.TickInterval
}

// driftBound is the least MaxClockSkew that covers MaxDriftPPM on both clocks:
// with rates 1−ρ and 1+ρ they diverge by D·2ρ/(1+ρ) while the faster one counts
// D (docs/clocks.md).
func (c *Config) driftBound() time.Duration {
	rho := float64(c.MaxDriftPPM) / 1e6
	return time.Duration(float64(c.Duration) * 2 * rho / (1 + rho))
}

// Validate returns an error that names every field of c that is wrong, or nil, and changes
// nothing. It expects defaults to be filled in.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.TickInterval <= 0 {
		bad("TickInterval %v must be positive", c.TickInterval)
	}
	if c.MaxDriftPPM < 0 || c.MaxDriftPPM >= 1e6 {
		bad("MaxDriftPPM %d must be in [0, 1000000)", c.MaxDriftPPM)
	}
	if c.Clock == nil {
		bad("Clock is missing")
	}
	errs = append(errs, c.validateRaft()...)
	errs = append(errs, c.validateDurations()...)
	if len(errs) > 0 {
		return fmt.Errorf("leaderlease: invalid config: %w", errors.Join(errs...))
	}
	return nil
}

// ticks reports whether the raft configuration and TickInterval say how long an
// election takes, which the defaults of the durations follow from.
func (c *Config) ticks() bool {
	return c.Raft != nil && c.TickInterval > 0 && c.Raft.HeartbeatTick > 0 && c.Raft.ElectionTick > c.Raft.HeartbeatTick
}

// validateDurations checks the durations against each other and against raft's. It
// says nothing of what is wrong only because something else is.
func (c *Config) validateDurations() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Duration <= 0 {
		if c.ticks() || c.Duration < 0 && c.TickInterval > 0 {
			bad("Duration %v must be positive", c.Duration)
		}
		return errs
	}
	if c.MaxPromise < c.Duration {
		bad("MaxPromise %v is below Duration %v: this node would refuse what it asks of others", c.MaxPromise, c.Duration)
	}
	if floor := c.electionFloor(); c.ticks() && c.Duration > floor && !c.AllowLongDuration {
		bad("Duration %v is above %v, (ElectionTick−1)·TickInterval, which delays every fail-over; set AllowLongDuration to accept that", c.Duration, floor)
	}
	c.validateSkew(bad)
	return errs
}

// validateSkew says what is wrong first with the part of Duration in which no read is
// served.
func (c *Config) validateSkew(bad func(format string, args ...any)) {
	switch {
	case c.MaxClockSkew <= 0:
		bad("MaxClockSkew %v must be positive", c.MaxClockSkew)
	case c.MaxClockSkew >= c.Duration:
		bad("MaxClockSkew %v must be below Duration %v, or no read is ever served", c.MaxClockSkew, c.Duration)
	case c.MaxDriftPPM >= 0 && c.MaxDriftPPM < 1e6 && c.MaxClockSkew < c.driftBound():
		bad("MaxClockSkew %v is below %v, which clocks that drift by MaxDriftPPM %d diverge over Duration %v",
			c.MaxClockSkew, c.driftBound(), c.MaxDriftPPM, c.Duration)
	case c.ticks() && c.Duration-c.MaxClockSkew < c.twoBeats():
		bad("Duration %v less MaxClockSkew %v is below two heartbeats, %v: one lost heartbeat would lose the lease",
			c.Duration, c.MaxClockSkew, c.twoBeats())
	}
}

// heartbeat is the time from one heartbeat of a leader to the next.
func (c *Config) heartbeat() time.Duration {
	return time.Duration(c.Raft.HeartbeatTick) * c.TickInterval
}

func (c *Config) twoBeats() time.Duration { return 2 * c.heartbeat() }

// validateRaft checks what the lease depends on in raft's configuration.
func (c *Config) validateRaft() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	r := c.Raft
	if r == nil {
		bad("Raft is missing: the raft.Config that the node runs with")
		return errs
	}
	if r.ID == raft.None || raft.IsLocalMsgTarget(r.ID) {
		bad("Raft.ID %d is reserved", r.ID)
	}
	if r.Storage == nil {
		bad("Raft.Storage is missing, which tells a restart from a first start")
	}
	if r.HeartbeatTick <= 0 || r.ElectionTick <= r.HeartbeatTick {
		bad("Raft.ElectionTick %d must be above Raft.HeartbeatTick %d, and both positive", r.ElectionTick, r.HeartbeatTick)
	}
	if !r.PreVote {
		bad("Raft.PreVote must be on, or a node that was bound disrupts the leader when it is free")
	}
	if !r.CheckQuorum {
		bad("Raft.CheckQuorum must be on, or a leader without a quorum never steps down")
	}
	if !r.StepDownOnRemoval {
		bad("Raft.StepDownOnRemoval must be on, or a removed leader keeps its reign")
	}
	if r.ReadOnlyOption != raft.ReadOnlySafe {
		bad("Raft.ReadOnlyOption must be ReadOnlySafe: ReadOnlyLeaseBased serves stale reads (docs/design.md)")
	}
	if r.DisableConfChangeValidation {
		bad("Raft.DisableConfChangeValidation must be off: overlapping quorums depend on it")
	}
	return errs
}

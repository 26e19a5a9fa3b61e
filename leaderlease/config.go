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

// Config describes one Raft group's lease. TickInterval is required, and Raft for
// New and Wrap; the rest has defaults that suit most groups. All nodes of a group
// should use the same durations.
type Config struct {
	// Raft is the configuration the node was, or will be, started with. It must be nil
	// for NewRawNode, StartNode and RestartNode, which take it as an argument.
	// PreVote, CheckQuorum and StepDownOnRemoval must be on, ReadOnlyOption
	// must be ReadOnlySafe. Storage tells whether this is a restart.
	Raft *raft.Config
	// TickInterval is the time between two calls of Tick.
	TickInterval time.Duration

	// Duration is the length of a promise and of the lease. A voter counts it by its own clock from the
	// arrival of a heartbeat, the leader by its own clock from the sending. Default:
	// (ElectionTick−1)·TickInterval, the longest that delays no fail-over. With a shorter one, more reads
	// fall back to ReadIndex when heartbeats are late. For a longer one, see AllowLongDuration.
	Duration time.Duration
	// MaxClockSkew is the most by which the lease clocks of two nodes may diverge over one Duration
	// (assumption A1). It limits drift, not the offset between clocks: clocks may show any times of day.
	// Lease reads stop MaxClockSkew before the lease ends. Default: Duration/5. If it is too small, reads
	// may be stale. If it is large, fewer reads use the lease.
	MaxClockSkew time.Duration
	// MaxDriftPPM is the rate error of a single clock, in parts per million, that MaxClockSkew must
	// cover. Default: 83,333, chrony's default maximum slew rate. Lower it only together with the
	// maximum rate of your time daemon.
	MaxDriftPPM int
	// MaxPromise is the longest promise that this node makes. Default: Duration. If it is below the leader's
	// Duration, this node grants nothing. Without Promises a restarted node neither votes nor campaigns for
	// MaxPromise, the restart hold. With Promises the hold is the saved duration. A long MaxPromise then
	// prolongs only three holds: after a step or disruption of the clock, after the restart that follows it, and
	// after the first restart with an empty store. Set it to the longest Duration that any member has had.
	MaxPromise time.Duration
	// AllowLongDuration permits a Duration beyond (ElectionTick−1)·TickInterval. Voters are then
	// still bound when they would campaign, which delays every fail-over.
	AllowLongDuration bool
	// Promises saves the longest promise across restarts; raftwal.Log and PromiseFile implement it.
	// Optional: without it, a node must be down for the old MaxPromise before MaxPromise is lowered. A
	// node that has run with it must always run with it, since promises made without it are not
	// saved.
	Promises PromiseStore
	// ConfIndex is the index up to which the ConfState of Storage includes every configuration change. Set it
	// only if the ConfState comes from a durable state machine that is ahead of the snapshot of Storage. Such a
	// state machine skips changes that it has applied already, so ApplyConfState is not called for them. The log
	// may end before ConfIndex. Default: 0, ApplyConfState follows every change. If it is too low, there is no lease
	// (StatusConfPending). If it is too high, the lease may count former voters and reads may be stale,
	// or ApplyConfState with other voters is a misuse.
	ConfIndex uint64

	// Clock is this node's lease clock (assumption A2). Default: clock.System. Every reader reads it,
	// and the Lease reads it while locked: it must not block and must not call the Lease.
	Clock clock.Clock
	// Send sends messages to peers without blocking. Optional: with it, a leader answers the ReadIndex
	// requests of followers from its lease; without it, they take a quorum round. Incoming, Ready, Tick,
	// ApplyConfState and SetDiskStalled call it, without a lock. It may call every method that does
	// not block, except Ready.
	Send func(msgs []*raftpb.Message)
	// NotifyRead is called, with the lease locked, when ReadRequests has a request. It must not block and
	// must not call the Lease. Optional, for loops that do not select on the channel.
	NotifyRead func()
	// Logger receives changes of the lease, misuses, clock faults, failed saves and warnings. Successive
	// failures of the clock or of a save are logged once. A goroutine of the Lease calls its handler
	// without a lock, so a handler that blocks stops no method of the Lease, and may call all of them. Up to
	// 64 lines wait for it. Later ones are dropped, and the next line has their number as dropped_lines.
	// Close waits for the handler for at most a second. Default: none. Safety never depends on it.
	Logger *slog.Logger
	// Tracer receives all events and decisions, except lease reads. Each Lease needs a *leasetrace.Trace
	// of its own. Package leasetrace writes traces to a file and checks them. Default: none.
	Tracer Tracer
	// Disabled turns the lease of this node off: as leader it serves its Reads by quorum rounds. It still
	// makes promises to other leaders, which answer its Reads from their leases.
	Disabled bool
}

// PromiseStore keeps one duration, the longest promise, on stable storage. New calls it in its caller's goroutine.
// While the node runs, a goroutine of the Lease calls it, one call at a time. Close waits for that call, so the
// call must not wait for the caller of Close.
type PromiseStore interface {
	// LoadLongestPromise returns the duration that was saved last, or 0.
	LoadLongestPromise() (time.Duration, error)
	// SaveLongestPromise replaces the saved duration and returns once d is durable, even if the saved one
	// equals d. After an error either may be saved.
	SaveLongestPromise(d time.Duration) error
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

func (c *Config) params() core.Params {
	return core.Params{
		ID:              c.Raft.ID,
		Duration:        c.Duration,
		MaxClockSkew:    c.MaxClockSkew,
		TransferTimeout: time.Duration(c.Raft.ElectionTick) * c.TickInterval,
	}
}

// electionFloor is the minimum time from the arrival of a heartbeat to a campaign of a follower that
// ticks regularly.
func (c *Config) electionFloor() time.Duration {
	if c.Raft == nil {
		return 0
	}
	return time.Duration(c.Raft.ElectionTick-1) * c.TickInterval
}

// driftBound is the minimum MaxClockSkew that covers MaxDriftPPM on both clocks. With rates 1−ρ and
// 1+ρ they diverge by D·2ρ/(1+ρ) while the faster one counts D (docs/clocks.md).
func (c *Config) driftBound() time.Duration {
	rho := float64(c.MaxDriftPPM) / 1e6
	return time.Duration(float64(c.Duration) * 2 * rho / (1 + rho))
}

// Validate returns an error that names every wrong field of c, or nil. It expects that WithDefaults
// has filled in the defaults.
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

// ticksValid reports whether the raft configuration and TickInterval determine the election timeout.
func (c *Config) ticksValid() bool {
	return c.Raft != nil && c.TickInterval > 0 && c.Raft.HeartbeatTick > 0 && c.Raft.ElectionTick > c.Raft.HeartbeatTick
}

// validateDurations checks the durations against each other and against raft's. It reports no error
// that only follows from another one.
func (c *Config) validateDurations() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Duration <= 0 {
		if c.ticksValid() || c.Duration < 0 && c.TickInterval > 0 {
			bad("Duration %v must be positive", c.Duration)
		}
		return errs
	}
	if c.MaxPromise < c.Duration {
		bad("MaxPromise %v is below Duration %v: this node would refuse the promise that it asks for as leader", c.MaxPromise, c.Duration)
	}
	if floor := c.electionFloor(); c.ticksValid() && c.Duration > floor && !c.AllowLongDuration {
		bad("Duration %v is above %v, (ElectionTick−1)·TickInterval, which delays every fail-over; set AllowLongDuration to accept that", c.Duration, floor)
	}
	c.validateSkew(bad)
	return errs
}

// validateSkew reports the first error of MaxClockSkew.
func (c *Config) validateSkew(bad func(format string, args ...any)) {
	switch {
	case c.MaxClockSkew <= 0:
		bad("MaxClockSkew %v must be positive", c.MaxClockSkew)
	case c.MaxClockSkew >= c.Duration:
		bad("MaxClockSkew %v must be below Duration %v, or no read is ever served from the lease", c.MaxClockSkew, c.Duration)
	case c.MaxDriftPPM >= 0 && c.MaxDriftPPM < 1e6 && c.MaxClockSkew < c.driftBound():
		bad("MaxClockSkew %v is below %v, by which clocks with MaxDriftPPM %d diverge over Duration %v",
			c.MaxClockSkew, c.driftBound(), c.MaxDriftPPM, c.Duration)
	case c.ticksValid() && c.Duration-c.MaxClockSkew < 2*c.heartbeat():
		bad("Duration %v − MaxClockSkew %v is below two heartbeats, %v: one lost heartbeat would lose the lease",
			c.Duration, c.MaxClockSkew, 2*c.heartbeat())
	}
}

// heartbeat is the time from one heartbeat of a leader to the next.
func (c *Config) heartbeat() time.Duration {
	return time.Duration(c.Raft.HeartbeatTick) * c.TickInterval
}

// validateRaft checks the options of raft on which the lease depends.
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
		bad("Raft.Storage is missing: it tells a restart from a first start")
	}
	if r.HeartbeatTick <= 0 || r.ElectionTick <= r.HeartbeatTick {
		bad("Raft.ElectionTick %d must be above Raft.HeartbeatTick %d, and both positive", r.ElectionTick, r.HeartbeatTick)
	}
	if !r.PreVote {
		bad("Raft.PreVote must be on, or a node disrupts the leader when its promise ends")
	}
	if !r.CheckQuorum {
		bad("Raft.CheckQuorum must be on, or a leader without a quorum never steps down")
	}
	if !r.StepDownOnRemoval {
		bad("Raft.StepDownOnRemoval must be on, or a removed leader goes on leading")
	}
	if r.ReadOnlyOption != raft.ReadOnlySafe {
		bad("Raft.ReadOnlyOption must be ReadOnlySafe: ReadOnlyLeaseBased serves stale reads (docs/design.md)")
	}
	if r.DisableConfChangeValidation {
		bad("Raft.DisableConfChangeValidation must be off: overlapping quorums depend on it")
	}
	return errs
}

package leaderlease

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Lease drives the leader lease of one Raft group on one node: the leader's half (core.Lease) and the voter's
// (core.Guard). Only a Context, and a Ready or Close that waits, has a timer. It has a goroutine only while it
// saves (Config.Promises) or writes log lines (Config.Logger).
//
// A nil *Lease is a member without the library. Ready, Incoming, Tick, ApplyConfState and Applied leave
// raft as it is, WouldBlock and CanCampaign forbid nothing, ReadRequests never delivers, and reads and
// Token fail with StatusDisabled. A member that ran with a Lease must stay down for its restart hold
// before it runs with nil.
//
// All methods are safe for concurrent use. Ready must see each raft.Ready once and in order.
type Lease struct {
	cfg             Config            // immutable, with defaults filled in
	clock           clock.Clock       // cfg.Clock
	disruptable     clock.Disruptable // nil if the clock cannot tell
	nonce           nonce             // immutable, unique to this start
	clockInfo       clock.Info        // immutable, measured by New
	lastAtStart     uint64            // immutable, last index in the log at New
	hardTermAtStart uint64            // immutable, term of the hard state at New
	lastTermAtStart uint64            // immutable, term of the entry or snapshot at lastAtStart
	longest         time.Duration     // immutable, the longest promise that this or an earlier process may make

	// view is the newest lease. The holder of mu replaces it; readers load it without a lock.
	view atomic.Pointer[view]
	// commit is the newest commit index that raft has published. It is stored before any message,
	// entry or answer that depends on it leaves Ready.
	commit atomic.Uint64
	// applied is the newest index the embedder has applied; written under mu.
	applied atomic.Uint64

	requests chan []byte // see ReadRequests
	saves    sync.WaitGroup
	stats    counters

	mu struct {
		sync.Mutex
		lease *core.Lease
		guard *core.Guard

		// Raft has published these.
		term   uint64
		leader uint64
		role   raft.StateType
		// ready is set by the first call of Ready.
		ready bool
		// ownIndex is the first entry of the term that this node leads; 0 if it does not lead, or if
		// Ready has not shown the entry yet.
		ownIndex uint64

		conf confWatch
		// appliedSeen is set when Applied is called.
		appliedSeen bool

		checks checks
		reads  pendingReads
		// last is the newest clock reading, marker the disruption marker of that time. readFailed means
		// that a later reading has failed.
		last       core.Instant
		marker     uint64
		readFailed bool
		// heldTerm is the term of the lease that was reported to watchers as held, 0 if none.
		heldTerm uint64
		// durable is set once storage holds a term, so that New of the next process sees a restart. Grants
		// leave only then. Without AsyncStorageWrites it is always set: grants leave after the write.
		durable bool
		closed  bool
		saving  saving
		log     logQueue
		traced  traced
		pace    pace
		// committed is the newest entry that raft has handed out as committed, or the entry at the
		// commit index of the start.
		committed commitHint
		// misuse is the first rule that the embedding broke. failReads means that reads must fail on every
		// path.
		misuse    error
		failReads bool

		watchers map[*watcher]struct{}
		work     map[*work]struct{}
	}
}

// view is the lease that readers load, and the disruption marker of the time when it was made.
type view struct {
	core.View
	marker uint64
}

// same reports whether v has the lease of o and this marker. It ignores View.From. Comparing field by
// field is several times as fast as ==.
func (v *view) same(o *core.View, marker uint64) bool {
	return v.Term == o.Term && v.End == o.End && v.Usable == o.Usable && v.Status == o.Status && v.marker == marker
}

// New returns the lease of the group that cfg.Raft describes. NewRawNode, StartNode and RestartNode
// also make the raft node. With New, cfg.Raft must be the same raft.Config that raft gets, and the log
// must be in its Storage, which tells whether this is a restart. Call New before the first Ready is
// handled. If Storage is filled later, the first Ready that shows it is a misuse and begins a restart
// hold. Errors name every wrong field.
//
// New returns a *MisuseError if the log in Storage proves more entries committed than its HardState
// says (RecoverCommit). Do not run raft on such a Storage, even without a Lease: a majority of an
// outdated configuration could elect the node, and it would acknowledge writes that a leader with a
// valid lease does not see. Give RecoverCommit(Storage) to raft and to New.
func New(cfg Config) (*Lease, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	start, err := readStart(&cfg)
	if err != nil {
		return nil, err
	}
	cfg.Logger = cfg.Logger.With("component", "leaderlease", "id", strconv.FormatUint(cfg.Raft.ID, 16))
	l := &Lease{cfg: cfg, clock: cfg.Clock, clockInfo: clock.Describe(cfg.Clock), requests: make(chan []byte, 1)}
	l.disruptable, _ = cfg.Clock.(clock.Disruptable)
	l.stats.init()
	if _, err := rand.Read(l.nonce[:]); err != nil {
		return nil, fmt.Errorf("leaderlease: draw a nonce: %w", err)
	}

	// A disruption after this is seen by the next reading.
	marker := l.disruptions()
	now := cfg.Clock.Now()
	if !now.Valid() {
		return nil, fmt.Errorf("leaderlease: the clock reads %d at start, want a positive reading", now)
	}
	mu := &l.mu
	mu.last, mu.marker = now, marker
	mu.term = start.hard.GetTerm()
	mu.durable = !cfg.Raft.AsyncStorageWrites || start.restarted
	mu.guard = core.NewGuard(now, l.nonce.incarnation(), cfg.MaxPromise, start.hold)
	if cfg.Promises != nil {
		mu.guard.SetStored(start.floor(&cfg), start.saved)
	}
	mu.guard.SetTerm(mu.term)
	params := cfg.params()
	if err := l.beginTrace(&start, now, params); err != nil {
		return nil, err
	}
	mu.lease = core.NewLease(params)
	mu.lease.SetDisabled(cfg.Disabled)
	l.setVotersLocked(start.conf, now)
	mu.conf.known, mu.conf.stored = cfg.ConfIndex, cfg.ConfIndex
	l.commit.Store(start.commit)
	mu.committed = start.committed
	l.lastAtStart, l.lastTermAtStart = start.last, start.lastTerm
	l.hardTermAtStart = start.hard.GetTerm()
	l.longest = max(cfg.MaxPromise, start.saved)
	l.applied.Store(min(cfg.Raft.Applied, start.commit))
	l.publishLocked(now)
	return l, nil
}

// Close gives the lease up for good, fails every waiting read, and ends every Watch and Context. The
// voter's half goes on: keep passing messages through Incoming and Ready while raft runs. Close waits for
// a save of Config.Promises, and for at most a second for the handler of Config.Logger. It may be called
// more than once. The package comment says what each method does after Close.
func (l *Lease) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	done := l.closeLocked(l.nowLocked())
	l.mu.Unlock()
	done.report()
	l.saves.Wait()
	l.waitForLog()
}

func (l *Lease) closeLocked(now core.Instant) finished {
	l.mu.closed = true
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindClose, At: now})
	l.mu.lease.Close()
	done := l.publishLocked(now)
	done = append(done, l.failReadsLocked(l.noLeaseLocked(core.Closed), true)...)
	for w := range l.mu.watchers {
		l.unwatchLocked(w)
	}
	return done
}

func init() {
	hook.Invalidate = func(lease any) {
		if l, ok := lease.(*Lease); ok {
			l.invalidate()
		}
	}
}

// invalidate gives the lease up now. Heartbeats that are sent later renew it.
func (l *Lease) invalidate() {
	l.mu.Lock()
	now := l.nowLocked()
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindInvalidate, At: now})
	l.mu.lease.Invalidate(now)
	done := l.publishLocked(now)
	l.mu.Unlock()
	done.report()
}

// SetDiskStalled tells the lease whether this node's disk is stalled. While it is stalled, TryRead refuses
// with StatusDiskStalled and Read makes a quorum round, since a leader that cannot write should not look
// healthy. Linearizability does not depend on this call.
func (l *Lease) SetDiskStalled(stalled bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	now := l.nowLocked()
	l.mu.lease.SetDiskStalled(stalled)
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindDisk, At: now, OK: stalled})
	done := l.publishLocked(now)
	l.mu.Unlock()
	done.report()
}

// nowLocked reads the clock for callers that hold the lock. A clock that fails, steps
// back or was disrupted costs the lease here. nowLocked returns 0 if the reading must not be used.
func (l *Lease) nowLocked() core.Instant {
	now, marker := l.clock.Now(), l.disruptions()
	if marker != l.mu.marker {
		// The first reading may be from before the disruption.
		now = l.clock.Now()
	}
	switch {
	case !now.Valid():
		l.clockFaultLocked("the clock cannot be read", now)
		l.mu.lease.FailClock()
		l.mu.readFailed = true
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindClockFailed})
		l.publishFaultLocked(now)
		return 0
	case marker != l.mu.marker:
		// The machine was migrated or restored. Its clock does not say how much time it has missed.
		l.stats.disruptions.Add(1)
		l.logLocked(slog.LevelWarn, "clock disrupted, lease given up", "marker", marker)
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindClockDisrupted, At: now})
		l.startOverLocked(now, marker)
	case now < l.mu.last:
		l.clockFaultLocked("the clock went backwards", now)
		l.mu.lease.ClockWentBack(now)
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindClockBack, At: now})
		l.startOverLocked(now, marker)
	case l.mu.readFailed:
		// The clock has gone on meanwhile, so promises end when they would have.
		l.mu.lease.ClockRead(now)
		l.traceLocked(leasetrace.Event{Kind: leasetrace.KindClockRead, At: now})
		l.publishFaultLocked(now)
	}
	l.mu.last, l.mu.readFailed = now, false
	return now
}

// startOverLocked drops every instant from before now. Only later measurements count for the lease, and
// this node begins a restart hold. If the memory of the machine went back too, the node has forgotten
// votes and entries, which nothing repairs (docs/clocks.md).
func (l *Lease) startOverLocked(now core.Instant, marker uint64) {
	l.mu.last, l.mu.marker = now, marker
	l.mu.lease.StartOver(now)
	l.mu.guard.StartOver(now)
	l.publishFaultLocked(now)
}

func (l *Lease) clockFaultLocked(what string, now core.Instant) {
	l.stats.clockFaults.Add(1)
	if l.mu.readFailed {
		return // logged already
	}
	l.logLocked(slog.LevelError, what+", lease given up",
		"term", l.mu.term, "reading", int64(now), "last", int64(l.mu.last))
}

// publishFaultLocked publishes a view after a clock fault, even if the caller of nowLocked does not publish.
func (l *Lease) publishFaultLocked(now core.Instant) {
	l.storeViewLocked(&view{View: l.mu.lease.View(max(now, l.mu.last)), marker: l.mu.marker}, now)
}

func (l *Lease) disruptions() uint64 {
	if l.disruptable == nil {
		return 0
	}
	return l.disruptable.Disruptions()
}

func (l *Lease) id() uint64 { return l.cfg.Raft.ID }

func (l *Lease) noLeaseLocked(s Status) *NoLeaseError {
	cause := l.mu.misuse
	if s == core.ConfPending {
		cause = l.wrongLocked()
	}
	return &NoLeaseError{
		Term: l.mu.term, Leader: l.mu.leader, Status: s, RetryAfter: l.retryAfterLocked(s),
		Err: cause, noReady: !l.mu.ready,
	}
}

func (l *Lease) retryAfterLocked(s Status) time.Duration {
	switch {
	case s == core.Closed, s == core.Disabled:
		return 0
	case s == core.RestartHold:
		// The view has this status until the next Tick, though the hold may have ended.
		return cmp.Or(l.mu.guard.Info(l.mu.last).Hold, l.cfg.heartbeat())
	case l.mu.leader != raft.None && l.mu.leader != l.id():
		return 0
	default:
		return l.cfg.heartbeat()
	}
}

// publishLocked publishes the current lease to readers, and answers the waiting reads that it covers.
func (l *Lease) publishLocked(now core.Instant) finished {
	mu := &l.mu
	pending, disabled := mu.conf.pending(), l.cfg.Disabled || mu.misuse != nil
	l.traceFlagsLocked(now, pending, disabled)
	mu.lease.SetRestartHold(mu.guard.InRestartHold(now))
	mu.lease.SetConfPending(pending)
	mu.lease.SetDisabled(disabled)
	// now is 0 after a failed reading. FailClock then refuses reads, and the view has the newest good reading.
	v := mu.lease.View(max(now, mu.last))
	if old := l.view.Load(); old != nil && old.same(&v, mu.marker) {
		l.noteHeldLocked(now)
		return nil
	}
	next := &view{View: v, marker: mu.marker}
	l.storeViewLocked(next, now)
	l.noteHeldLocked(now)
	return l.joinedLocked(next)
}

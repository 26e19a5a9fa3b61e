package leaderlease

import (
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/core"
)

// Tick must be called each TickInterval, and reports whether raft may tick now:
//
//	if lease.Tick() {
//		node.Tick()
//	}
//
// It returns false only while this node is bound and known to be the only voter, since raft would elect it without a
// message (V5). If the configuration is not known, because ApplyConfState is missing or was wrong, it returns true,
// and Ready keeps V5. Else raft's ticks would stop for ever under a leader that renews this node's promise.
//
// Tick also repeats lost read rounds, detects the end of the lease, saves the longest promise if it has changed, and
// warns of two mistakes: reads wait while Applied does not move, and Tick is called at another interval.
func (l *Lease) Tick() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	now := l.nowLocked()
	done := l.publishLocked(now)
	l.retryLocked()
	l.warnLocked()
	l.paceLocked(now)
	l.saveLocked(now)
	may := l.mu.role == raft.StateLeader || !l.soleVoterLocked() || !l.mu.guard.Bound(now)
	l.traceTickLocked(now, may)
	l.mu.Unlock()
	done.report()
	if !may {
		l.stats.withheld.tick.Add(1)
	}
	return may
}

// retryLocked repeats a round that has had no answer for half an election timeout. Raft repeats a leader's own rounds
// with each heartbeat, but not those of a follower.
func (l *Lease) retryLocked() {
	r := &l.mu.reads
	r.age++
	if r.waiting.len() > 0 && l.needsRoundLocked() {
		l.askLocked()
	}
}

// needsRoundLocked reports whether no round is under way, or the newest one seems to be lost.
func (l *Lease) needsRoundLocked() bool {
	r := &l.mu.reads
	return !r.asked || r.age >= max(l.cfg.Raft.ElectionTick/2, 1)
}

const (
	// paceTicks is the number of ticks in one measurement of their interval.
	paceTicks = 100
	// paceFactor is the factor by which the measured interval may differ from TickInterval. On a busy machine
	// ticks are late, but not by this factor for paceTicks of them.
	paceFactor = 3
	// paceGap limits one gap, in TickIntervals, so that one pause of the process does not make the mean of
	// paceTicks too long.
	paceGap = 20
)

// pace measures the interval at which Tick is called.
type pace struct {
	last  core.Instant // 0 before the first tick
	ticks int
	// took is the duration of the measurement. limited is the same with each gap cut to paceGap intervals.
	took, limited time.Duration
	warned        bool
}

// paceLocked warns once if Tick is called at another interval than TickInterval, on which the durations of the lease
// depend.
func (l *Lease) paceLocked(now core.Instant) {
	p, interval := &l.mu.pace, l.cfg.TickInterval
	if p.warned || !now.Valid() {
		return
	}
	if p.last == 0 || now < p.last {
		*p = pace{last: now}
		return
	}
	gap := now.Sub(p.last)
	p.last = now
	p.ticks++
	p.took += gap
	p.limited += min(gap, paceGap*interval)
	if p.ticks < paceTicks {
		return
	}
	measured := p.took / paceTicks
	burst := p.took < interval // the loop makes up for missed ticks
	fast, slow := paceFactor*measured < interval, p.limited/paceTicks > paceFactor*interval
	if slow || fast && !burst {
		l.logLocked(slog.LevelWarn, "Tick is called at another interval than Config.TickInterval",
			"tick_interval", interval, "measured", measured)
		p.warned = true
	}
	*p = pace{last: now, warned: p.warned}
}

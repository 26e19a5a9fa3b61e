package leaderlease

import (
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/core"
)

// Tick is called each TickInterval, and reports whether raft may tick now:
//
//	if lease.Tick() {
//		node.Tick()
//	}
//
// It withholds the tick while this node is bound and known to be the only voter: raft
// would elect it without sending anything (V5). While the configuration is not known,
// because ApplyConfState is awaited or was called wrongly, ticks go on, since a leader
// may bind this node for as long as it leads; Ready holds back then what V5 forbids.
// It also repeats lost read rounds, notices that the lease has run out, warns of reads
// that wait for an Applied that does not move and, once, of ticks that come at another
// interval than TickInterval, and has a shorter promise saved when that is due.
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
		l.stats.withheld[WithheldTick].Add(1)
	}
	return may
}

// retryLocked asks again for a round that has not been answered for half an
// election timeout. A leader's own rounds are repeated by raft with each
// heartbeat; those of a follower are not.
func (l *Lease) retryLocked() {
	r := &l.mu.reads
	r.age++
	if r.waiting.len() > 0 && l.overdueLocked() {
		l.askLocked()
	}
}

// overdueLocked reports whether no round is under way, as far as can be told. One may
// have been lost while those who waited for it have left.
func (l *Lease) overdueLocked() bool {
	r := &l.mu.reads
	return !r.asked || r.age >= max(l.cfg.Raft.ElectionTick/2, 1)
}

const (
	// paceTicks is how many ticks one measurement of their interval takes.
	paceTicks = 100
	// paceFactor is how far the measured interval may be from TickInterval. Ticks are
	// late on a busy machine, but not by this factor for paceTicks of them.
	paceFactor = 3
	// paceGap limits, in TickIntervals, what one gap counts for, so that one pause of the
	// process does not make the mean of paceTicks too long.
	paceGap = 20
)

// pace measures at which interval Tick is called.
type pace struct {
	last  core.Instant // 0 before the first tick
	ticks int
	// took is the time that the ticks took, limited that time with long gaps cut short.
	took, limited time.Duration
	warned        bool
}

// paceLocked warns once if ticks come at another interval than TickInterval, from which
// the durations of the lease follow.
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

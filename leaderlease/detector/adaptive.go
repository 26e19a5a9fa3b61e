package detector

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
)

const (
	// A silence below minHeartbeats or below minSilence is no suspicion. Without the first limit, the
	// first pause of a steady leader would be one. The second is for heartbeats 10 ms apart: garbage
	// collection or a container's CPU quota stop a process for up to 100 ms.
	minHeartbeats = 5
	minSilence    = 250 * time.Millisecond
	// pauseFactor is how much longer than the longest recorded pause a suspicious silence is. With n
	// pauses in a window, of exponentially distributed lengths, one in n windows has such a pause.
	pauseFactor = 2
	// minUsefulTimeout is the election timeout below which a suspicion gains nothing.
	minUsefulTimeout = 300 * time.Millisecond
	// minPenalty is half the time for which the first false suspicion counts. Each one counts for
	// twice as long as the one before, up to maxPenalty. If all counted equally long, a leader that
	// pauses each half hour would be replaced each time, since the window forgets sooner than that.
	minPenalty, maxPenalty = time.Hour / 2, 32 * time.Hour
)

// adaptive records how long leaders are silent while they live, as seen by one follower. Only time in
// which this member ran counts, since messages may wait for this member too.
type adaptive struct {
	heartbeat, tick, timeout, learn time.Duration // immutable

	// since is when the observation of the leader began. from is its last sign of life, or the end
	// of this member's own last pause. ran is when this member was last seen to run.
	since, from, ran time.Time
	// pauses are silences that ended, of all leaders.
	pauses window
	// doubled is how often false suspicions have doubled the minimum. doubledAt is the time of the
	// newest change, and penalty how long it counts.
	doubled   int
	doubledAt time.Time
	penalty   time.Duration
	// suspected is the member that was suspected last, silent since suspectedFrom. It is raft.None
	// once that member was heard.
	suspected     uint64
	suspectedFrom time.Time
}

func newAdaptive(cfg *Config, now time.Time) adaptive {
	a := adaptive{
		heartbeat: cfg.Heartbeat, tick: cfg.tick(), timeout: cfg.ElectionTimeout,
		learn: cfg.Observe, since: now, from: now, ran: now, penalty: minPenalty,
	}
	if a.timeout < minUsefulTimeout {
		a.learn = 0
	}
	return a
}

// noteRunning records that this member runs. After a gap of a tick and a heartbeat it was paused, so
// the silence starts again. After a gap of an election timeout the observation starts again too.
func (a *adaptive) noteRunning(now time.Time) {
	late := now.Sub(a.ran) - a.tick
	a.ran = now
	if late > a.heartbeat {
		a.from = now
	}
	if late > a.timeout {
		a.since = now
	}
}

// noteLeader records that a leader is known, and whether it is another one.
func (a *adaptive) noteLeader(another bool, now time.Time) {
	a.from = now
	if another {
		a.since = now
	}
}

// noteAlive records a sign of life. A leader that was silent for an election timeout is observed
// anew. The first half of the observation is not recorded: new connections, and those that wait for
// a TCP retransmission, pause for a second and are steady then.
func (a *adaptive) noteAlive(now time.Time) {
	took := now.Sub(a.from)
	a.from = now
	switch {
	case took >= a.timeout:
		a.since = now
	case now.Sub(a.since) >= a.learn/2:
		a.pauses.note(took, now)
	}
}

// limit returns the silence that is a suspicion, or the election timeout if none is.
func (a *adaptive) limit(now time.Time) time.Duration {
	if a.learn == 0 || now.Sub(a.since) < a.learn {
		return a.timeout
	}
	return min(max(pauseFactor*a.pauses.max(now), a.minLimit(now)), a.timeout)
}

// minLimit returns the lower bound of limit, after it has let old penalties expire.
func (a *adaptive) minLimit(now time.Time) time.Duration {
	for a.penalty > minPenalty && now.Sub(a.doubledAt) >= a.penalty {
		a.doubledAt = a.doubledAt.Add(a.penalty)
		if a.doubled > 0 {
			a.doubled--
		} else {
			a.penalty /= 2
		}
	}
	return max(minHeartbeats*a.heartbeat, minSilence) << a.doubled
}

// exceeded reports whether the silence is a suspicion, or will be one when the time ahead has passed.
// After an election timeout, Tick decides.
func (a *adaptive) exceeded(ahead time.Duration, now time.Time) bool {
	silence, limit := now.Sub(a.from), a.limit(now)
	return limit < a.timeout && silence >= limit-ahead && silence < a.timeout
}

// isUsual reports whether leaders have been as silent as this one while they lived.
func (a *adaptive) isUsual(now time.Time) bool {
	if a.learn == 0 {
		return false
	}
	silence := now.Sub(a.from)
	return silence <= a.pauses.max(now) || silence < a.minLimit(now) && a.doubled > 0
}

// suspect reports whether the silence of leader is a suspicion, and records it.
func (a *adaptive) suspect(leader uint64, now time.Time) bool {
	if !a.exceeded(0, now) {
		return false
	}
	a.suspected, a.suspectedFrom = leader, a.from
	return true
}

// refute reports whether a message of peer proves that the last suspicion was false: raft would not
// have replaced the leader. It does not matter which message it is, and which member leads by now.
func (a *adaptive) refute(peer uint64, now time.Time) bool {
	if peer != a.suspected || peer == raft.None {
		return false
	}
	a.suspected = raft.None
	took := now.Sub(a.suspectedFrom)
	if took >= a.timeout {
		return false
	}
	a.pauses.note(took, now)
	if a.minLimit(now) < a.timeout {
		a.doubled, a.penalty = a.doubled+1, min(2*a.penalty, maxPenalty)
	}
	a.doubledAt = now
	return true
}

// confirm records that a process of peer is dead. Its late messages refute nothing then.
func (a *adaptive) confirm(peer uint64) {
	if peer == a.suspected {
		a.suspected = raft.None
	}
}

// windowMinutes is how many minutes a window remembers. A leader that pauses every few minutes, as
// for a checkpoint, would be suspected each time if it were smaller. If it is large, fail-over stays
// slow for longer after one pause.
const windowMinutes = 10

// window holds the longest duration that was noted in about the last ten minutes. It keeps maxima
// and no counts: in a quantile many short pauses would hide a long one.
type window struct {
	longest [windowMinutes]time.Duration // of each minute
	at      int                          // the present minute
	since   time.Time                    // when the present minute began
}

func (w *window) note(took time.Duration, now time.Time) {
	w.advance(now)
	w.longest[w.at] = max(w.longest[w.at], took)
}

func (w *window) max(now time.Time) time.Duration {
	w.advance(now)
	return slices.Max(w.longest[:])
}

// advance drops the minutes that are too old.
func (w *window) advance(now time.Time) {
	if now.Sub(w.since) >= windowMinutes*time.Minute {
		*w = window{since: now}
	}
	for ; now.Sub(w.since) >= time.Minute; w.since = w.since.Add(time.Minute) {
		w.at = (w.at + 1) % windowMinutes
		w.longest[w.at] = 0
	}
}

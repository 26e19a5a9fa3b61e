package detector

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
)

const (
	// leastSilence is for how many heartbeats' time a leader may be silent however steady it
	// was. Fewer: the first stall that it has ever had is an alarm. More: fail-over takes longer.
	leastSilence = 5
	// leastAlarm is for how long a leader may be silent however often it sends heartbeats. Shorter:
	// where those are 10 ms apart, and no promise lasts longer, the collector of garbage or the quota
	// of a container, which stops processes for up to 100 ms, is an alarm.
	leastAlarm = 250 * time.Millisecond
	// excess is by what a silence has to exceed the longest one that was none. If those fall off
	// exponentially, one in as many windows does so by twice. Less: alarms each day.
	excess = 2
	// leastTimeout is the election timeout below which there is nothing to win.
	leastTimeout = 300 * time.Millisecond
	// calm is half of how long the first false alarm counts. Each one counts for twice as long as
	// the one before, calmest at most, until as long has passed once more. Always the same: who
	// stalls each half hour, which the window has forgotten by then, is replaced each time.
	calm, calmest = time.Hour / 2, 32 * time.Hour
)

// learnt is how long leaders are silent while they live, as one follower has seen it. Only time
// in which this member ran counts: what its leader says may wait for it, too.
type learnt struct {
	beat, tick, timeout, learn time.Duration // immutable

	// since is from when on the leader is watched. from is its last sign of life, or the end of
	// this member's own last pause, ran when this member was last seen to run.
	since, from, ran time.Time
	// stalls are silences that have ended, of whoever led.
	stalls window
	// doubts is how often a false alarm has doubled the least silence, doubted when last, or
	// when one was taken back.
	doubts  int
	doubted time.Time
	calm    time.Duration // for how long the last one counts
	// accused is who was suspected last, silent since when; raft.None once it was heard.
	accused uint64
	silent  time.Time
}

func newLearnt(cfg *Config, now time.Time) learnt {
	l := learnt{
		beat: cfg.Heartbeat, tick: cfg.ElectionTimeout / time.Duration(max(cfg.ElectionTicks, 1)), timeout: cfg.ElectionTimeout,
		learn: cfg.Learn, since: now, from: now, ran: now, calm: calm,
	}
	if l.timeout < leastTimeout {
		l.learn = 0
	}
	return l
}

// runs tells that this member runs. If it has not for a tick and a heartbeat, it was stopped, or
// waited for a processor: the silence begins anew. If it has not for an election timeout, so
// does the watch, as it may be another day.
func (l *learnt) runs(now time.Time) {
	late := now.Sub(l.ran) - l.tick
	l.ran = now
	if late > l.beat {
		l.from = now
	}
	if late > l.timeout {
		l.since = now
	}
}

// follow tells that a leader is known, and whether it is another one.
func (l *learnt) follow(another bool, now time.Time) {
	l.from = now
	if another {
		l.since = now
	}
}

// heard tells of a sign of life. Who was silent for an election timeout was away, and is watched
// anew. The first half of that teaches nothing: connections that are made anew, or wait for
// TCP's next attempt, stall for a second, and are steady then.
func (l *learnt) heard(now time.Time) {
	took := now.Sub(l.from)
	l.from = now
	switch {
	case took >= l.timeout:
		l.since = now
	case now.Sub(l.since) >= l.learn/2:
		l.stalls.note(took, now)
	}
}

// limit is the silence that is an alarm, the election timeout if none is.
func (l *learnt) limit(now time.Time) time.Duration {
	if l.learn == 0 || now.Sub(l.since) < l.learn {
		return l.timeout
	}
	return min(max(excess*l.stalls.max(now), l.least(now)), l.timeout)
}

// least is the silence that is no alarm, whatever was learnt.
func (l *learnt) least(now time.Time) time.Duration {
	for l.calm > calm && now.Sub(l.doubted) >= l.calm {
		l.doubted = l.doubted.Add(l.calm)
		if l.doubts > 0 {
			l.doubts--
		} else {
			l.calm /= 2
		}
	}
	return max(leastSilence*l.beat, leastAlarm) << l.doubts
}

// alarming reports whether the silence is an alarm, or will be in so long. After an election
// timeout it speaks for itself.
func (l *learnt) alarming(in time.Duration, now time.Time) bool {
	silence, limit := now.Sub(l.from), l.limit(now)
	return limit < l.timeout && silence >= limit-in && silence < l.timeout
}

// usual reports whether the silence is one that leaders have shown while they lived.
func (l *learnt) usual(now time.Time) bool {
	if l.learn == 0 {
		return false
	}
	silence := now.Sub(l.from)
	return silence <= l.stalls.max(now) || silence < l.least(now) && l.doubts > 0
}

// accuses reports whether the silence is an alarm, and notes whose it is.
func (l *learnt) accuses(leader uint64, now time.Time) bool {
	if !l.alarming(0, now) {
		return false
	}
	l.accused, l.silent = leader, l.from
	return true
}

// acquits tells that peer was heard, whatever it says and whoever leads by now, and reports
// whether that proves the last alarm false: raft would not have replaced it.
func (l *learnt) acquits(peer uint64, now time.Time) bool {
	if peer != l.accused || peer == raft.None {
		return false
	}
	l.accused = raft.None
	took := now.Sub(l.silent)
	if took >= l.timeout {
		return false
	}
	l.stalls.note(took, now)
	if l.least(now) < l.timeout {
		l.doubts, l.calm = l.doubts+1, min(2*l.calm, calmest)
	}
	l.doubted = now
	return true
}

// convicts tells that a process of peer is dead: the alarm was right, whatever is still read of it.
func (l *learnt) convicts(peer uint64) {
	if peer == l.accused {
		l.accused = raft.None
	}
}

const (
	// slots is for how many minutes a window remembers. Fewer: a leader that stalls every few
	// minutes, as for a checkpoint, is suspected each time. More: after one stall fail-over is
	// slow for longer.
	slots = 10
	slot  = time.Minute
)

// window knows the longest time that was noted in the last ten minutes, or a little less. It
// counts nothing: many short ones do not hide one that is long, as they do from a quantile.
type window struct {
	longest [slots]time.Duration // of each minute
	at      int                  // the present minute's
	since   time.Time            // when that began
}

func (w *window) note(took time.Duration, now time.Time) {
	w.turn(now)
	w.longest[w.at] = max(w.longest[w.at], took)
}

func (w *window) max(now time.Time) time.Duration {
	w.turn(now)
	return slices.Max(w.longest[:])
}

// turn forgets the minutes that are too long ago.
func (w *window) turn(now time.Time) {
	if now.Sub(w.since) >= slots*slot {
		*w = window{since: now}
	}
	for ; now.Sub(w.since) >= slot; w.since = w.since.Add(slot) {
		w.at = (w.at + 1) % slots
		w.longest[w.at] = 0
	}
}

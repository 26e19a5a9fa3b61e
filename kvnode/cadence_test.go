package kvnode

import (
	"math/rand/v2"
	"testing"
	"time"
)

// cadenceRun is a member that ticks, and hears heartbeats.
type cadenceRun struct {
	cadence
	alone, along int // ticks
}

// until lets time pass until end: beats arrive at those times, which rise.
func (r *cadenceRun) until(end time.Time, beats []time.Time) {
	tick := func(now time.Time, count *int) {
		*count++
		r.ticked(now)
	}
	for {
		wake := r.nextTick()
		switch {
		case len(beats) > 0 && beats[0].Before(wake) && beats[0].Before(end):
			now := beats[0]
			beats = beats[1:]
			if r.beat(now); r.tickNow {
				tick(now, &r.along)
			}
		case wake.Before(end):
			tick(wake, &r.alone)
		default:
			return
		}
	}
}

// Whenever the heartbeats come, after a few ticks all go with them, and they are never more
// than by the clock alone.
func TestTicksGoWithHeartbeats(t *testing.T) {
	const interval, n = 50 * time.Millisecond, 1000
	for _, c := range []struct {
		name   string
		period time.Duration
	}{
		{"as often", interval}, {"of a leader with a fast clock", interval * 999 / 1000}, {"of a leader with a slow clock", interval * 1001 / 1000},
	} {
		for phase := time.Duration(0); phase < interval; phase += interval / 25 {
			begin := time.Unix(1, 0)
			r := cadenceRun{cadence: newCadence(interval, begin)}
			var beats []time.Time
			for i := range n {
				jitter := time.Duration(i*7919%5-2) * time.Millisecond / 2 // at most 1 ms
				beats = append(beats, begin.Add(phase+time.Duration(i)*c.period+jitter))
			}
			r.until(begin.Add(n*interval), beats)
			if ticks := r.alone + r.along; ticks > n || ticks < n*98/100 || r.alone > n/20 {
				t.Errorf("%s, phase %v: %d ticks of %d, %d of them without a heartbeat", c.name, phase, ticks, n, r.alone)
			}
		}
	}
}

// A member without a leader ticks by its clock, and without heartbeats the first tick waits a fifth
// of an interval more.
func TestTicksWithoutHeartbeats(t *testing.T) {
	const interval = 60 * time.Millisecond
	begin := time.Unix(1, 0)
	r := cadenceRun{cadence: newCadence(interval, begin)}
	r.until(begin.Add(100*interval+1), nil)
	if r.alone != 100 {
		t.Errorf("%d ticks in 100 intervals", r.alone)
	}
	last := r.due
	r.beat(last)
	r.ticked(last)
	for i, want := range []time.Duration{interval + interval/5, 2*interval + interval/5, 3*interval + interval/5} {
		if got := r.nextTick().Sub(last); got != want {
			t.Errorf("tick %d after the last heartbeat is at %v, want %v", i, got, want)
		}
		r.ticked(r.nextTick())
	}
}

// A burst of heartbeats, as after a pause, is one tick, and what was missed is not made up for.
func TestBurstsAreOneTick(t *testing.T) {
	const interval = 50 * time.Millisecond
	now := time.Unix(1, 0)
	c := newCadence(interval, now)
	now = now.Add(10 * interval)
	for range 10 {
		c.beat(now)
	}
	if !c.tickNow {
		t.Fatal("no tick is due after ten intervals")
	}
	c.ticked(now)
	if c.beat(now.Add(interval / 2)); c.tickNow {
		t.Error("another tick is due half an interval later")
	}
	if c.nextTick().Before(now.Add(interval)) {
		t.Errorf("the next tick is due %v after one that was late", c.nextTick().Sub(now))
	}
}

// A tick goes with a heartbeat that is a fifth of an interval early, or as late as the loop may
// be, and not with one that is earlier.
func TestHowEarlyATickMayGo(t *testing.T) {
	const interval = 50 * time.Millisecond
	due := time.Unix(1, 0).Add(interval)
	for _, tt := range []struct {
		name string
		at   time.Duration // from when it is due
		want bool
	}{
		{"half an interval early", -interval / 2, false},
		{"just too early", -interval/5 - 1, false},
		{"a fifth early", -interval / 5, true},
		{"in time", 0, true},
		{"the last that is waited for", interval / 5, true},
		{"late", 3 * interval, true},
	} {
		c := newCadence(interval, time.Unix(1, 0))
		if c.beat(due.Add(tt.at)); c.tickNow != tt.want || !c.heartbeatSinceTick {
			t.Errorf("%s: beat() makes it %+v, want a tick: %v", tt.name, c, tt.want)
		}
		if want := due.Add(interval / 5); c.nextTick() != want {
			t.Errorf("%s: without another one the tick is %v after it is due, want %v", tt.name, c.nextTick().Sub(due), want.Sub(due))
		}
	}
}

// A leader with a late timer at each tick sends as many heartbeats as one with an exact timer.
func TestLatenessDoesNotAddUp(t *testing.T) {
	const interval, n = 50 * time.Millisecond, 1000
	for _, late := range []time.Duration{1, time.Millisecond, interval / 2, interval - 1} {
		begin := time.Unix(1, 0)
		c, ticks := newCadence(interval, begin), 0
		for {
			now := c.nextTick().Add(late)
			if now.After(begin.Add((n + 1) * interval)) {
				break
			}
			c.ticked(now)
			ticks++
		}
		if ticks != n {
			t.Errorf("%d ticks in %d intervals, each %v late", ticks, n, late)
		}
	}
}

// Whenever heartbeats come and however late the loop is, raft's time is never ahead of the
// clock by more than a tick goes early. Where the loop is in time, a tick is never further from
// the next than a tick goes early and waits, and where heartbeats come at any time ticks are a
// sixth fewer at the worst.
func TestTicksAreBoundByTheClock(t *testing.T) {
	const interval, slack = 50 * time.Millisecond, 10 * time.Millisecond
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		begin := time.Unix(1, 0)
		c, now, last, ticks := newCadence(interval, begin), begin, begin, 0
		late, every := time.Duration(rng.IntN(2))*2*interval, int64(time.Millisecond)+rng.Int64N(int64(2*interval))
		for now.Sub(begin) < time.Minute {
			// Either the timer wakes the loop, or a heartbeat does.
			wake, beat := c.nextTick(), now.Add(time.Duration(1+rng.Int64N(every)))
			if now = beat; wake.Before(beat) {
				now = wake
			}
			if late > 0 && rng.IntN(10) == 0 {
				now = now.Add(time.Duration(rng.Int64N(int64(late))))
			}
			if !now.Before(beat) {
				c.beat(now)
			}
			if !c.tickNow && now.Before(c.nextTick()) {
				continue
			}
			c.ticked(now)
			ticks++
			if most := int((now.Sub(begin) + slack) / interval); ticks > most {
				t.Fatalf("seed %d: %d ticks in %v, want %d at most", seed, ticks, now.Sub(begin), most)
			}
			if gap := now.Sub(last); late == 0 && gap > interval+2*slack {
				t.Fatalf("seed %d: %v from one tick to the next, want %v at most", seed, gap, interval+2*slack)
			}
			last = now
		}
		if least := int(time.Minute/(interval+slack)) - 1; late == 0 && ticks < least {
			t.Errorf("seed %d: %d ticks in a minute, want %d at least", seed, ticks, least)
		}
	}
}

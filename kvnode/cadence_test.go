package kvnode

import (
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
		wake := r.wake()
		switch {
		case len(beats) > 0 && beats[0].Before(wake) && beats[0].Before(end):
			now := beats[0]
			beats = beats[1:]
			if r.beat(now); r.now {
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
		{"as often", interval}, {"of a leader whose clock is fast", interval * 999 / 1000}, {"of one whose clock is slow", interval * 1001 / 1000},
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

// Who hears no leader ticks by its clock, and without heartbeats the first tick waits a fifth
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
		if got := r.wake().Sub(last); got != want {
			t.Errorf("tick %d after the last heartbeat is at %v, want %v", i, got, want)
		}
		r.ticked(r.wake())
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
	if !c.now {
		t.Fatal("no tick is due after ten intervals")
	}
	c.ticked(now)
	if c.beat(now.Add(interval / 2)); c.now {
		t.Error("another tick is due half an interval later")
	}
	if c.wake().Before(now.Add(interval)) {
		t.Errorf("the next tick is due %v after one that was late", c.wake().Sub(now))
	}
}

// In a cluster at rest followers tick with the heartbeats, as often as by their clocks, and a
// tick goes by itself where none come.
func TestFollowersTickWithHeartbeats(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for _, n := range c.nodes {
			time.Sleep(time.Second)
			before := n.Status().Late.Count
			const odd = 13 * time.Millisecond
			for range 100 {
				time.Sleep(odd)
				var got cadence
				n.call(func() { got = n.loop.cadence })
				if got.heard != (n != leader) || got.now {
					t.Fatalf("%+v, leads: %v", got, n == leader)
				}
			}
			ticks := n.Status().Late.Count - before
			if want := uint64(100 * odd / n.cfg.TickInterval); ticks > want+1 || ticks < want-1 {
				t.Errorf("%d ticks in %v, want %d", ticks, 100*odd, want)
			}
		}
	})
}

package detector

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The window against a list of all that was ever noted: the longest of the last nine minutes is
// known, and none of before the last ten.
func TestAWindowAgainstAList(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var w window
		type noted struct {
			took time.Duration
			at   time.Time
		}
		var all []noted
		now := at(0)
		for range 300 {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(time.Minute)))
			n := noted{time.Duration(r.IntN(1000)) * ms, now}
			all = append(all, n)
			w.note(n.took, now)
			now = now.Add(time.Duration(r.ExpFloat64() * float64(4*time.Minute)))
			var least, most time.Duration
			for _, n := range all {
				if now.Sub(n.at) <= (windowMinutes-1)*time.Minute {
					least = max(least, n.took)
				}
				if now.Sub(n.at) < windowMinutes*time.Minute {
					most = max(most, n.took)
				}
			}
			if got := w.max(now); got < least || got > most {
				t.Fatalf("seed %d: max(%v) = %v, want %v of nine minutes, or %v of ten", seed, now.Sub(at(0)), got, least, most)
			}
		}
	}
}

// The limit is compared with one computed from the whole history of silences and of this member's pauses.
func TestAdaptiveAgainstItsHistory(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := Config{ElectionTicks: 20, Heartbeat: beat, ElectionTimeout: time.Second, Observe: 10 * time.Second}
		l, h := newAdaptive(&cfg, at(0)), history{{started, at(0)}}
		for now := at(0); len(h) < 1500; {
			step := time.Duration(r.ExpFloat64() * float64(pick(r, 30*ms, 30*ms, 30*ms, 30*ms, 60*ms, 200*ms)))
			if r.IntN(500) == 0 {
				step = time.Duration(r.Int64N(int64(20 * time.Second)))
			}
			now = now.Add(step)
			e := event{pick(r, ran, ran, ran, spoke, spoke), now}
			if r.IntN(300) == 0 {
				e.what = replaced
			}
			h = append(h, e)
			l.noteRunning(now)
			switch e.what {
			case spoke:
				l.noteAlive(now)
			case replaced:
				l.noteLeader(true, now)
			}
			least, most := h.limits()
			if got := l.limit(now); got < least || got > most {
				t.Fatalf("seed %d, event %d, at %v: limit() = %v, want %v to %v", seed, len(h), now.Sub(at(0)), got, least, most)
			}
		}
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

type event struct {
	what int
	at   time.Time
}

const (
	started = iota
	ran
	spoke
	replaced
)

// history is all that has happened.
type history []event

// limits are what the limit may be now, by whether pauses of nearly ten minutes ago count.
func (h history) limits() (least, most time.Duration) {
	now := h[len(h)-1].at
	var from, since time.Time
	var recent, older time.Duration
	for i, e := range h {
		if i > 0 {
			switch slept := e.at.Sub(h[i-1].at); {
			case slept > time.Second+beat:
				from, since = e.at, e.at
			case slept > 2*beat:
				from = e.at
			}
		}
		switch e.what {
		case spoke:
			took, ago := e.at.Sub(from), now.Sub(e.at)
			from = e.at
			switch {
			case took >= time.Second:
				since = e.at
			case e.at.Sub(since) >= 5*time.Second && ago <= 9*time.Minute:
				recent, older = max(recent, took), max(older, took)
			case e.at.Sub(since) >= 5*time.Second && ago < 10*time.Minute:
				older = max(older, took)
			}
		case started, replaced:
			from, since = e.at, e.at
		}
	}
	if now.Sub(since) < 10*time.Second {
		return time.Second, time.Second
	}
	return min(max(2*recent, 250*ms), time.Second), min(max(2*older, 250*ms), time.Second)
}

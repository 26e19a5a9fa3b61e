package ttl

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/core"
)

const sec = time.Second

// A TTL lease is revoked after its TTL, not earlier.
func TestExpiry(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		time.Sleep(50 * time.Millisecond) // between two ticks
		r.grant(1, 10)
		time.Sleep(10*sec - 1)
		r.wantGone()
		time.Sleep(150 * time.Millisecond)
		r.wantGone("1")
		if s := r.engine.Stats(); s.Expirations != 1 || s.Active != 0 || !s.Leading {
			t.Errorf("Stats() = %+v, want one expiration", s)
		}
	})
}

func TestKeepAlivesKeepAlive(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 3)
		r.grant(2, 3)
		for range 20 {
			time.Sleep(sec)
			r.renew(1)
		}
		r.wantGone("2")
		if s := r.engine.Stats(); s.Renewals != 20 {
			t.Errorf("Stats() = %+v, want 20 renewals", s)
		}
		time.Sleep(3*sec - 1)
		r.wantGone("2")
		time.Sleep(200 * time.Millisecond)
		r.wantGone("2", "1")
		if _, err := r.engine.Renew(t.Context(), 1); !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
			t.Errorf("Renew() after the end = %v, want %v", err, rpctypes.ErrGRPCLeaseNotFound)
		}
	})
}

// A new leader gives each lease its full TTL.
func TestANewLeaderStartsAnew(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 10)
		time.Sleep(9 * sec)
		r.lead(0)
		time.Sleep(100 * sec) // without a leader nothing expires
		r.wantGone()
		r.lead(3)
		time.Sleep(10*sec - 1)
		r.wantGone()
		time.Sleep(200 * time.Millisecond)
		r.wantGone("1")
	})
}

// Time in which a leader could not answer does not count, and a grace period follows. Each case
// interrupts for 60 s, 8 s into a TTL of 10 s.
func TestOnlyServedTimeCounts(t *testing.T) {
	for _, c := range []struct {
		name      string
		interrupt func(r *rig)
	}{
		{"the process is stopped, or the machine sleeps", func(r *rig) { r.sleep(60 * sec) }},
		{"the lease has expired", func(r *rig) { r.away(core.Expired, 60*sec) }},
		{"the lease is in its margin", func(r *rig) { r.away(core.Margin, 60*sec) }},
		{"the disk hangs", func(r *rig) { r.away(core.DiskStalled, 60*sec) }},
		{"leadership is transferred, and not taken", func(r *rig) { r.away(core.Transferring, 60*sec) }},
		{"the clock is broken, and there is no quorum", func(r *rig) {
			r.failConfirms(errTest)
			r.away(core.ClockFault, 60*sec)
			r.failConfirms(nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRig(t, nil, func(t *testing.T, r *rig) {
				r.lead(1)
				r.grant(1, 10)
				time.Sleep(8 * sec)
				c.interrupt(r)
				r.wantGone()
				// The tick that resumes may count nothing, and the interruption may
				// cost two ticks.
				time.Sleep(2*sec - 1)
				r.wantGone()
				time.Sleep(400 * time.Millisecond)
				r.wantGone("1")
			})
		})
	}
}

// away interrupts the leader lease.
func (r *rig) away(s core.Status, d time.Duration) {
	r.standing(s)
	time.Sleep(d)
	synctest.Wait()
	if gone := r.gone(); len(gone) > 0 {
		r.t.Errorf("revoked %q while the leader lease is %v", gone, s)
	}
	r.standing(core.Valid)
}

func (r *rig) failConfirms(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirmErr = err
}

// A TTL lease that was about to expire gets the grace period.
func TestGraceAfterAnInterruption(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 10)
		r.grant(2, 10)
		time.Sleep(10*sec - 50*time.Millisecond)
		r.sleep(60 * sec)
		time.Sleep(1400 * time.Millisecond)
		r.wantGone()
		r.renew(2) // the keep-alive that waited in a socket
		time.Sleep(400 * time.Millisecond)
		r.wantGone("1")
		time.Sleep(10 * sec)
		r.wantGone("1", "2")
	})
}

// A short pause costs no grace period: no client can have noticed it, and on a busy machine nothing
// would ever expire.
func TestShortPausesCount(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		time.Sleep(50 * time.Millisecond) // between two ticks
		r.grant(1, 10)
		for range 20 {
			r.sleep(300 * time.Millisecond)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2*sec - 10*time.Millisecond)
		r.wantGone()
		time.Sleep(200 * time.Millisecond)
		r.wantGone("1")
	})
}

// An unstable leader lease does not keep TTL leases alive for ever: the time in which it holds adds
// up.
func TestAFlappingLeaderLeaseIsNoEternity(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		time.Sleep(50 * time.Millisecond) // between two ticks
		r.grant(1, 10)
		flap := func(times int) {
			for range times {
				time.Sleep(300 * time.Millisecond)
				r.standing(core.Margin)
				time.Sleep(200 * time.Millisecond)
				r.standing(core.Valid)
			}
		}
		flap(40)
		r.wantGone() // 8 of 20 s count
		flap(20)
		r.wantGone("1")
	})
}

// A long interruption is followed by a full grace period.
func TestGraceBeginsAnewAfterALongInterruption(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		time.Sleep(50 * time.Millisecond) // between two ticks
		r.grant(1, 3)
		time.Sleep(1500 * time.Millisecond)
		r.away(core.Margin, 200*time.Millisecond)
		time.Sleep(1400 * time.Millisecond)
		r.away(core.Expired, 60*sec)
		time.Sleep(1400 * time.Millisecond)
		r.wantGone()
		time.Sleep(400 * time.Millisecond)
		r.wantGone("1")
	})
}

// A keep-alive waits for the end of a lease and then finds another lease with the same ID. It is
// confirmed again that this member leads.
func TestAKeepAliveThatHasWaitedIsConfirmedAgain(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		r.hold()
		time.Sleep(2200 * time.Millisecond) // the revocation is proposed
		renewed := make(chan error, 1)
		go func() {
			_, err := r.engine.Renew(t.Context(), 1)
			renewed <- err
		}()
		synctest.Wait()
		r.failConfirms(errTest)
		r.revoke(1)
		r.grant(1, 600)
		if err := <-renewed; !errors.Is(err, errTest) {
			t.Errorf("Renew() = %v after it has waited for long, want %v", err, errTest)
		}
	})
}

// Expired leases are revoked at the configured rate.
func TestRate(t *testing.T) {
	inRig(t, func(c *Config) { c.Rate = 100 }, func(t *testing.T, r *rig) {
		r.lead(1)
		for id := range int64(100) {
			r.grant(id+1, 2)
		}
		time.Sleep(2500*time.Millisecond - 1)
		if n := len(r.gone()); n < 44 || n > 66 {
			t.Errorf("%d revoked half a second after all have expired, want about 55 at 110 per second", n)
		}
		time.Sleep(sec)
		if n := len(r.gone()); n != 100 {
			t.Errorf("%d revoked in the end, want 100", n)
		}
	})
}

func TestTimeLeft(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 10)
		for i := range 10 {
			left, err := r.engine.TimeLeft(t.Context(), 1)
			if want := time.Duration(10-i) * sec; err != nil || left.Time != want || left.TTL != 10 {
				t.Errorf("TimeLeft() after %d s = %+v, %v, want %v of 10", i, left, err, want)
			}
			time.Sleep(sec)
		}
		if _, err := r.engine.TimeLeft(t.Context(), 2); !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
			t.Errorf("TimeLeft(2) = %v, want %v", err, rpctypes.ErrGRPCLeaseNotFound)
		}
	})
}

// Renew and TimeLeft answer only if the member can confirm that it leads.
func TestAnswersAreConfirmed(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 10)
		time.Sleep(9 * sec)
		r.failConfirms(errTest)
		if _, err := r.engine.Renew(t.Context(), 1); !errors.Is(err, errTest) {
			t.Errorf("Renew() = %v, want %v", err, errTest)
		}
		if _, err := r.engine.TimeLeft(t.Context(), 1); !errors.Is(err, errTest) {
			t.Errorf("TimeLeft() = %v, want %v", err, errTest)
		}
		r.failConfirms(nil)
		time.Sleep(1200 * time.Millisecond)
		r.wantGone("1") // a refused renewal has no effect
	})
}

// The longest TTL works, even if its end exceeds a Duration because the leader has led for long.
func TestTheLongestTTL(t *testing.T) {
	for _, led := range []time.Duration{0, 20 * 365 * 24 * time.Hour} {
		inRig(t, nil, func(t *testing.T, r *rig) {
			r.lead(1)
			now := r.engine.current.Load()
			now.mu.Lock()
			now.mu.now += servedTime(led)
			now.mu.Unlock()
			r.grant(1, store.MaxTTL)
			time.Sleep(sec)
			r.renew(1)
			time.Sleep(sec)
			r.wantGone()
			most := min(store.MaxTTL*sec-sec, 1<<63-1-led-2*sec)
			left, err := r.engine.TimeLeft(t.Context(), 1)
			if err != nil || left.Time > most || left.Time < most-sec {
				t.Errorf("TimeLeft() of a leader since %v = %v, %v, want %v", led, left.Time, err, most)
			}
		})
	}
	for _, n := range []int64{0, 1, 1 << 32, 1<<63 - 1} {
		if s := seconds(n); s < 0 {
			t.Errorf("seconds(%d) = %v overflows", n, time.Duration(s))
		}
	}
	for _, c := range []struct {
		ticks int
		tick  time.Duration
		want  int64
	}{{10, 100 * time.Millisecond, 2}, {10, 10 * time.Millisecond, 1}, {50, sec, 75}, {5, 100 * time.Millisecond, 1}} {
		if got := MinTTL(c.ticks, c.tick); got != c.want {
			t.Errorf("MinTTL(%d, %v) = %d, want %d as in etcd", c.ticks, c.tick, got, c.want)
		}
	}
}

// Without leader leases, or if answers take longer than a lease lasts so that it rarely holds, the
// leader asks the quorum.
func TestWithoutLeaderLeases(t *testing.T) {
	for _, s := range []core.Status{core.Disabled, core.Expired, core.Margin} {
		inRig(t, nil, func(t *testing.T, r *rig) {
			r.lead(1)
			r.answering(s, 0)
			r.grant(1, 10)
			time.Sleep(10*sec - 1)
			r.wantGone()
			time.Sleep(300 * time.Millisecond)
			r.wantGone("1")
			r.mu.Lock()
			confirms := r.confirms
			r.mu.Unlock()
			if confirms < 50 {
				t.Errorf("%v: %d quorum rounds in 10 s, want one at each tick", s, confirms)
			}
		})
	}
}

package ttl

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func everyMinute(c *Config) { c.Checkpoint = time.Minute }

func (r *rig) wantRemaining(id, want int64) {
	r.t.Helper()
	synctest.Wait()
	if l, _ := r.store.TTLLease(id); l.Remaining != want {
		r.t.Errorf("%d s remain in the log of TTL lease %d, want %d", l.Remaining, id, want)
	}
}

// Without checkpoints nothing is written, as in etcd; with them, long TTL leases
// are, and a new leader goes on from there.
func TestCheckpoints(t *testing.T) {
	for _, on := range []bool{false, true} {
		amend := everyMinute
		if !on {
			amend = func(*Config) {}
		}
		inRig(t, amend, func(t *testing.T, r *rig) {
			r.lead(1)
			r.grant(1, 600)
			r.grant(2, 60) // too short
			for range 15 {
				time.Sleep(10 * sec)
				r.renew(2)
			}
			if !on {
				r.wantRemaining(1, 0)
				return
			}
			l, _ := r.store.TTLLease(1)
			if l.Remaining < 470 || l.Remaining > 480 {
				t.Errorf("%d s remain in the log after 150 s of 600, want what did after 2 minutes", l.Remaining)
			}
			r.wantRemaining(2, 0)
			r.lead(0)
			r.lead(2)
			r.renew(2)
			time.Sleep(40 * sec)
			left, err := r.engine.TimeLeft(t.Context(), 1)
			if want := time.Duration(l.Remaining-40) * sec; err != nil || left.Time > want || left.Time < want-sec {
				t.Errorf("TimeLeft() with the next leader = %v, %v, want %v", left.Time, err, want)
			}
		})
	}
}

// A keep-alive promises the full TTL, also with the next leader: what the log
// holds is taken back before the answer.
func TestARenewalTakesACheckpointBack(t *testing.T) {
	inRig(t, everyMinute, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 600)
		time.Sleep(70 * sec)
		synctest.Wait()
		if l, _ := r.store.TTLLease(1); l.Remaining == 0 {
			t.Fatal("no checkpoint after a minute")
		}
		r.failProposals(errTest)
		if _, err := r.engine.Renew(t.Context(), 1); !errors.Is(err, errTest) {
			t.Errorf("Renew() = %v although the log holds less, want %v", err, errTest)
		}
		r.failProposals(nil)
		r.renew(1)
		r.wantRemaining(1, 0)
	})
}

// A checkpoint that is under way when a keep-alive comes must not be the last
// word.
func TestARenewalDuringACheckpoint(t *testing.T) {
	inRig(t, everyMinute, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 600)
		time.Sleep(50 * sec)
		r.hold()
		time.Sleep(30 * sec)
		renewed := make(chan error, 1)
		go func() {
			_, err := r.engine.Renew(t.Context(), 1)
			renewed <- err
		}()
		synctest.Wait()
		select {
		case err := <-renewed:
			t.Fatalf("Renew() = %v while a checkpoint is under way, want none", err)
		default:
		}
		r.release()
		if err := <-renewed; err != nil {
			t.Fatal(err)
		}
		r.wantRemaining(1, 0)
		if left, err := r.engine.TimeLeft(t.Context(), 1); err != nil || left.Time < 599*sec {
			t.Errorf("TimeLeft() = %v, %v, want 600 s", left.Time, err)
		}
	})
}

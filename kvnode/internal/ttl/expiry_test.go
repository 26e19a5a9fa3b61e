package ttl

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/core"
)

// Between the end of its time and the tick that notices, a TTL lease has no time left,
// and no less than none.
func TestNoTimeIsLeftBeforeTheTickThatRevokes(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		time.Sleep(50 * time.Millisecond) // between two ticks
		r.grant(1, 10)
		time.Sleep(10*sec + 20*time.Millisecond)
		r.wantGone()
		if left, err := r.engine.TimeLeft(t.Context(), 1); err != nil || left.Time != 0 {
			t.Errorf("TimeLeft() 20 ms after the end = %d ns, %v, want 0", left.Time, err)
		}
	})
}

// What is being revoked has no time left, also where an interruption would have given
// it the grace.
func TestNoGraceIsShownForWhatIsBeingRevoked(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		r.failProposals(errTest)
		time.Sleep(2200 * time.Millisecond)
		r.away(core.Expired, 10*sec)
		time.Sleep(150 * time.Millisecond) // the grace has begun
		if left, err := r.engine.TimeLeft(t.Context(), 1); err != nil || left.Time != 0 {
			t.Errorf("TimeLeft() of what is being revoked = %v, %v, want 0", left.Time, err)
		}
	})
}

// What is renewed often is never written to the log: a checkpoint is due that long
// after the last keep-alive.
func TestARenewalPutsTheCheckpointOff(t *testing.T) {
	inRig(t, everyMinute, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 600)
		for range 30 {
			time.Sleep(10 * sec)
			r.renew(1)
		}
		if n := r.engine.Stats().Checkpoints; n != 0 {
			t.Errorf("%d checkpoints in 5 minutes of keep-alives every 10 s, want none", n)
		}
	})
}

// lockedStore is a store that sees whether a TTL lease is read without the reign's
// lock. What is read then may be gone by the time that it is counted.
type lockedStore struct {
	Store
	rig  *rig
	free int
}

func (s *lockedStore) TTLLease(id int64) (store.TTLLease, bool) {
	if r := s.rig.engine.current.Load(); r != nil && r.mu.TryLock() {
		r.mu.Unlock()
		s.free++
	}
	return s.Store.TTLLease(id)
}

func TestTheStoreIsReadUnderTheLock(t *testing.T) {
	s := &lockedStore{}
	inRig(t, func(c *Config) { s.Store, c.Store = c.Store, s }, func(t *testing.T, r *rig) {
		s.rig = r
		r.grant(1, 600)
		for _, step := range []struct {
			name string
			read func()
		}{
			{"a new reign", func() { r.lead(1) }},
			{"Renew", func() { r.renew(1) }},
			{"TimeLeft", func() { _, _ = r.engine.TimeLeft(t.Context(), 1) }},
		} {
			s.free = 0
			if step.read(); s.free > 0 {
				t.Errorf("%s reads the store %d times without the lock", step.name, s.free)
			}
		}
	})
}

// lineCount counts what is logged.
type lineCount struct{ atomic.Int64 }

func (c *lineCount) Write(line []byte) (int, error) {
	c.Add(1)
	return len(line), nil
}

// Of a crowd that cannot be revoked ten are logged, and one every ten seconds from then
// on: the tries at 5, 8 and 11 s say nothing.
func TestFailuresAreLoggedNowAndThen(t *testing.T) {
	var log lineCount
	inRig(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, func(t *testing.T, r *rig) {
		r.lead(1)
		r.failProposals(errTest)
		for id := range int64(20) {
			r.grant(id+1, 2)
		}
		time.Sleep(500 * time.Millisecond)
		r.grant(21, 12)
		for _, c := range []struct {
			after time.Duration
			want  int64
		}{{2 * sec, 10}, {9 * sec, 10}, {1500 * time.Millisecond, 11}} {
			time.Sleep(c.after)
			synctest.Wait()
			if n := log.Load(); n != c.want {
				t.Errorf("%d lines %v later, want %d", n, c.after, c.want)
			}
		}
	})
}

// stubborn is a member whose proposals heed no context.
type stubborn struct {
	Member
	until chan struct{}
}

func (m *stubborn) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest, grants []uint64) (store.Result, error) {
	<-m.until
	return m.Member.ProposeFenced(ctx, term, r, grants)
}

// The next reign begins once nothing of the one before is left running.
func TestReignsDoNotOverlap(t *testing.T) {
	m := &stubborn{}
	inRig(t, func(c *Config) { m.Member, c.Member = c.Member, m }, func(t *testing.T, r *rig) {
		m.until = make(chan struct{}) // of the bubble
		r.lead(1)
		r.grant(1, 2)
		time.Sleep(2200 * time.Millisecond) // its end is proposed
		r.lead(2)
		if r.engine.Stats().Leading {
			t.Error("the engine leads again while a revocation of the reign before is under way")
		}
		close(m.until)
		synctest.Wait()
		if !r.engine.Stats().Leading {
			t.Error("the engine does not lead once the revocation is over")
		}
	})
}

// The defaults are those that the documentation of Config names.
func TestDefaults(t *testing.T) {
	got := Config{}.WithDefaults()
	got.Logger = nil
	want := Config{Interval: 100 * time.Millisecond, MaxGap: 500 * time.Millisecond, Grace: 1500 * time.Millisecond, Rate: 1000}
	if got != want {
		t.Errorf("WithDefaults() = %+v, want %+v", got, want)
	}
}

// Of TTL leases that begin between the same two ticks each ends at its own time,
// also those behind a longer one.
func TestTheShortestEndsFirst(t *testing.T) {
	for name, ttls := range map[string][]int64{"in order": {10, 30, 60}, "the longest first": {60, 30, 10}} {
		t.Run(name, func(t *testing.T) {
			inRig(t, nil, func(t *testing.T, r *rig) {
				r.lead(1)
				time.Sleep(50 * time.Millisecond) // between two ticks
				for _, ttl := range ttls {
					r.grant(ttl, ttl)
				}
				time.Sleep(10*sec + 150*time.Millisecond)
				r.wantGone("10")
				time.Sleep(20 * sec)
				r.wantGone("10", "30")
			})
		})
	}
}

// confirming is a member on which something happens while it confirms that it leads.
type confirming struct {
	Member
	meanwhile func()
}

func (c *confirming) Confirm(ctx context.Context, term uint64) error {
	if f := c.meanwhile; f != nil {
		c.meanwhile = nil
		f()
	}
	return c.Member.Confirm(ctx, term)
}

// What is left is read after the confirmation: what was true before it may have been
// said by a leader that was none any more.
func TestTimeLeftIsReadAfterTheConfirmation(t *testing.T) {
	m := &confirming{}
	inRig(t, func(c *Config) { m.Member, c.Member = c.Member, m }, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 10)
		m.meanwhile = func() { r.revoke(1) }
		if left, err := r.engine.TimeLeft(t.Context(), 1); !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
			t.Errorf("TimeLeft() of what was revoked meanwhile = %+v, %v, want %v", left, err, rpctypes.ErrGRPCLeaseNotFound)
		}
	})
}

// Where answers take longer than the leader lease lasts it is never held, or now and then.
// A quorum confirms then that time is served.
func TestTimeIsServedWithoutALeaderLease(t *testing.T) {
	for _, s := range []core.Status{core.Expired, core.Margin} {
		inRig(t, nil, func(t *testing.T, r *rig) {
			r.lead(1)
			r.answering(s, 0)
			r.grant(1, 10)
			time.Sleep(10*sec - 1)
			r.wantGone()
			time.Sleep(400 * time.Millisecond)
			r.wantGone("1")
		})
	}
}

// A tick waits for a quorum, and so does who renews meanwhile: of the time that has passed
// by then more than one gap may count.
func TestATickThatWaitsMakesNoTTLShorter(t *testing.T) {
	const ttl, round = 3 * sec, 450 * time.Millisecond
	for i := range 10 {
		inRig(t, nil, func(t *testing.T, r *rig) {
			r.lead(1)
			r.answering(core.Expired, round)
			time.Sleep(5 * sec)
			r.grant(1, int64(ttl/sec))
			time.Sleep(time.Duration(i) * 47 * time.Millisecond)
			r.renew(1)
			r.answering(core.Valid, 0)
			time.Sleep(ttl - time.Millisecond)
			r.wantGone()
			time.Sleep(2*round + 100*time.Millisecond)
			r.wantGone("1")
		})
	}
}

// Those that are revoked by clients do not stay in memory until their time.
func TestTheQueueForgets(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		for id := range int64(5000) {
			r.grant(id+1, 1_000_000)
			if id >= 10 {
				r.revoke(id + 1)
			}
			if id%500 == 0 {
				time.Sleep(150 * time.Millisecond)
			}
		}
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		if n := len(r.engine.current.Load().due); n > 1024 {
			t.Errorf("%d in the queue, want few more than the 10 that there are", n)
		}
	})
}

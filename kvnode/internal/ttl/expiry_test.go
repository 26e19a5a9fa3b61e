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

// Between its deadline and the tick that notices it, a TTL lease has no time left, and not less.
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

// A lease that is being revoked has no time left, even during a grace period.
func TestNoGraceDuringARevocation(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		r.failProposals(errTest)
		time.Sleep(2200 * time.Millisecond)
		r.away(core.Expired, 10*sec)
		time.Sleep(150 * time.Millisecond) // in the grace period
		if left, err := r.engine.TimeLeft(t.Context(), 1); err != nil || left.Time != 0 {
			t.Errorf("TimeLeft() of what is being revoked = %v, %v, want 0", left.Time, err)
		}
	})
}

// A keep-alive postpones the lease checkpoint, so a lease that is renewed often is never
// checkpointed.
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

// lockedStore counts reads of TTL leases without the leadership's lock, which may return leases
// that are gone when they are counted.
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
			{"a new leader", func() { r.lead(1) }},
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

// lineCount counts log lines.
type lineCount struct{ atomic.Int64 }

func (c *lineCount) Write(line []byte) (int, error) {
	c.Add(1)
	return len(line), nil
}

// Ten failures are logged, and then one every ten seconds.
func TestFailuresAreLoggedRarely(t *testing.T) {
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

// stubborn is a member with proposals that ignore their context.
type stubborn struct {
	Member
	until chan struct{}
}

func (m *stubborn) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest, generations []uint64) (store.Result, error) {
	<-m.until
	return m.Member.ProposeFenced(ctx, term, r, generations)
}

// A leadership starts after all goroutines of the one before have ended.
func TestLeadershipsDoNotOverlap(t *testing.T) {
	m := &stubborn{}
	inRig(t, func(c *Config) { m.Member, c.Member = c.Member, m }, func(t *testing.T, r *rig) {
		m.until = make(chan struct{}) // belongs to the bubble
		r.lead(1)
		r.grant(1, 2)
		time.Sleep(2200 * time.Millisecond) // its revocation is proposed
		r.lead(2)
		if r.engine.Stats().Leading {
			t.Error("the engine leads again while a revocation of the leadership before is under way")
		}
		close(m.until)
		synctest.Wait()
		if !r.engine.Stats().Leading {
			t.Error("the engine does not lead once the revocation is over")
		}
	})
}

// The defaults are those in the comments of Config.
func TestDefaults(t *testing.T) {
	got := Config{}.WithDefaults()
	got.Logger = nil
	want := Config{Interval: 100 * time.Millisecond, MaxGap: 500 * time.Millisecond, Grace: 1500 * time.Millisecond, Rate: 1000}
	if got != want {
		t.Errorf("WithDefaults() = %+v, want %+v", got, want)
	}
}

// Leases that start between two ticks expire in the order of their deadlines, not of their generations.
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

// confirming calls meanwhile during Confirm.
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

// TimeLeft reads the lease after the confirmation. An earlier value may be of a time when another
// member led.
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

// While a tick waits for a quorum, a renewal must allow for more than one gap that may count.
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

// Leases that clients revoke leave the queue before their deadlines.
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

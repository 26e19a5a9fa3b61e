package ttl

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/core"
)

// The loss of leadership stops everything at once: nothing more is proposed, and no proposal is
// waited for.
func TestTheLossOfLeadershipStopsEverything(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		for id := range int64(200) {
			r.grant(id+1, 2)
		}
		r.hold()
		time.Sleep(2200 * time.Millisecond)
		waits := make(chan error, 1)
		go func() {
			_, err := r.engine.Renew(context.Background(), 1)
			waits <- err
		}()
		synctest.Wait()
		r.lead(0)
		if err := <-waits; !errors.Is(err, ErrNotLeader) {
			t.Errorf("Renew() of what is being revoked = %v when the leadership ends, want ErrNotLeader", err)
		}
		r.release()
		time.Sleep(10 * sec)
		r.wantGone()
		if _, err := r.engine.Renew(t.Context(), 1); !errors.Is(err, ErrNotLeader) {
			t.Errorf("Renew() = %v, want ErrNotLeader", err)
		}
		if _, err := r.engine.TimeLeft(t.Context(), 1); !errors.Is(err, ErrNotLeader) {
			t.Errorf("TimeLeft() = %v, want ErrNotLeader", err)
		}
		if s := r.engine.Stats(); s.Leading || s.Active != 0 {
			t.Errorf("Stats() = %+v, want none: it does not lead", s)
		}
	})
}

// A late keep-alive is not answered before the outcome of the revocation is known, because an
// answer is a promise.
func TestNoRenewalOnceTheEndIsProposed(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		r.hold()
		time.Sleep(2200 * time.Millisecond) // the revocation is proposed
		answers := make(chan error, 1)
		go func() {
			_, err := r.engine.Renew(context.Background(), 1)
			answers <- err
		}()
		synctest.Wait()
		select {
		case err := <-answers:
			t.Fatalf("Renew() = %v while the revocation is under way, want none", err)
		default:
		}
		r.release()
		if err := <-answers; !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
			t.Errorf("Renew() = %v, want %v", err, rpctypes.ErrGRPCLeaseNotFound)
		}
	})
}

// A failed revocation may still take effect. It is repeated, and keep-alives are not answered
// meanwhile.
func TestAFailedRevocationIsTriedAgain(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		r.failProposals(errTest)
		time.Sleep(2200 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		if _, err := r.engine.Renew(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Renew() after a revocation in doubt = %v, want none before the deadline", err)
		}
		if left, err := r.engine.TimeLeft(t.Context(), 1); err != nil || left.Time != 0 {
			t.Errorf("TimeLeft() = %v, %v, want 0", left.Time, err)
		}
		r.failProposals(nil)
		time.Sleep(retryPause)
		r.wantGone("1")
	})
}

// A revocation in doubt is not abandoned when the leader lease is lost.
func TestARevocationInDoubtIsNotTakenBack(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		r.failProposals(errTest)
		time.Sleep(2200 * time.Millisecond)
		r.standing(core.Expired)
		time.Sleep(2 * retryPause)
		r.standing(core.Valid)
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		if _, err := r.engine.Renew(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Renew() = %v, want none before the deadline", err)
		}
		r.failProposals(nil)
		time.Sleep(retryPause)
		r.wantGone("1")
	})
}

// If the last check before a proposal finds that the leader lease is lost, nothing is proposed, and
// the lease can be renewed.
func TestAnAbandonedRevocationLeavesTheLease(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		synctest.Wait()
		leading := r.engine.current.Load()
		time.Sleep(1990 * time.Millisecond)
		leading.mu.Lock()
		e := leading.mu.leases[1]
		e.revoking = make(chan struct{})
		leading.mu.Unlock()
		r.standing(core.Expired)
		leading.revoke(e)
		r.standing(core.Valid)
		r.renew(1)
		time.Sleep(2*sec - 1)
		r.wantGone()
		time.Sleep(300 * time.Millisecond)
		r.wantGone("1")
	})
}

// Without a leader lease, a quorum round precedes a revocation. If a client revokes the lease and
// grants it again meanwhile, it keeps the new one, even if the cluster version is raised and neither lease
// has a generation.
func TestALeaseThatIsGrantedDuringAConfirmation(t *testing.T) {
	for _, raise := range []bool{false, true} {
		t.Run(fmt.Sprint("raise=", raise), func(t *testing.T) {
			inRigOf(t, store.ClusterVersionFirst, nil, func(t *testing.T, r *rig) {
				r.once(&r.confirmed, func() {
					r.revoke(1)
					r.grant(1, 3600)
					if raise {
						r.raise()
					}
				})
				r.grant(1, 2)
				r.lead(1)
				r.standing(core.Disabled)
				time.Sleep(20 * sec)
				synctest.Wait()
				if l, ok := r.store.TTLLease(1); !ok || l.TTL != 3600 {
					t.Errorf("TTLLease() = %+v, %v after 20 s of 3600 s", l, ok)
				}
			})
		})
	}
}

// A proposal without generations is void after the raise of the version, and is repeated at once.
// Clients do not notice.
func TestAVoidProposalIsRepeated(t *testing.T) {
	inRigOf(t, store.ClusterVersionFirst, nil, func(t *testing.T, r *rig) {
		r.grant(1, 100)
		r.apply(1, &store.Command{Request: remembering(1, 50)}) // by an earlier leader
		r.lead(1)
		r.once(&r.proposing, r.raise)
		r.renew(1)
		r.wantRemaining(1, 0)
	})
	inRigOf(t, store.ClusterVersionFirst, nil, func(t *testing.T, r *rig) {
		r.grant(1, 2)
		r.lead(1)
		r.once(&r.proposing, r.raise)
		time.Sleep(2200 * time.Millisecond)
		r.wantGone("1")
	})
}

// At the first cluster version a lease checkpoint would name an ID only, and could shorten the life of a
// later lease, so there are none.
func TestNoCheckpointsInTheFirstFormat(t *testing.T) {
	inRigOf(t, store.ClusterVersionFirst, everyMinute, func(t *testing.T, r *rig) {
		r.grant(1, 600)
		r.lead(1)
		r.once(&r.proposing, func() {
			r.revoke(1)
			r.grant(1, 600)
		})
		time.Sleep(120 * sec)
		r.wantRemaining(1, 0)
		r.once(&r.proposing, nil)
		r.raise()
		time.Sleep(10 * sec)
		synctest.Wait()
		if l, _ := r.store.TTLLease(1); l.Remaining == 0 {
			t.Error("no checkpoint after the raise")
		}
	})
}

func everyMinute(c *Config) { c.Checkpoint = time.Minute }

func (r *rig) wantRemaining(id, want int64) {
	r.t.Helper()
	synctest.Wait()
	if l, _ := r.store.TTLLease(id); l.Remaining != want {
		r.t.Errorf("%d s remain in the log of TTL lease %d, want %d", l.Remaining, id, want)
	}
}

// As in etcd there are no lease checkpoints by default. With them, a new leader continues with the
// remaining time of long leases.
func TestCheckpoints(t *testing.T) {
	for _, on := range []bool{false, true} {
		amend := everyMinute
		if !on {
			amend = func(*Config) {}
		}
		inRig(t, amend, func(t *testing.T, r *rig) {
			r.lead(1)
			r.grant(1, 600)
			r.grant(2, 60) // too short for checkpoints
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

// A keep-alive promises the full TTL even under the next leader, so the checkpoint in the log is
// reset before the answer.
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

// A checkpoint that is being proposed when a keep-alive arrives is reset afterwards.
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

package ttl

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/leaderlease/core"
)

// At the loss of leadership everything stops at once: what was to be revoked is
// not proposed, and what was proposed is not waited for.
func TestTheEndOfAReignStopsEverything(t *testing.T) {
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
			t.Errorf("Renew() of what is being revoked = %v when the reign ends, want ErrNotLeader", err)
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

// A keep-alive that comes too late is not answered before the end is certain: an
// answer would be a promise.
func TestNoRenewalOnceTheEndIsProposed(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		r.hold()
		time.Sleep(2200 * time.Millisecond) // it is proposed, and on its way
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

// A revocation that failed may still take effect, so it is tried again, and until
// then nobody is promised anything.
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

// Nor is it spared when the leader lease is lost before it can be tried again.
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

// The last look before a proposal finds that the leader lease is gone: nothing is
// proposed, and the TTL lease can be renewed again.
func TestWhatIsSparedMayLive(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 2)
		synctest.Wait()
		reign := r.engine.reign.Load()
		time.Sleep(1990 * time.Millisecond)
		reign.mu.Lock()
		e := reign.mu.leases[1]
		e.revoking = make(chan struct{})
		reign.mu.Unlock()
		r.standing(core.Expired)
		reign.revoke(e)
		r.standing(core.Valid)
		r.renew(1)
		time.Sleep(2*sec - 1)
		r.wantGone()
		time.Sleep(300 * time.Millisecond)
		r.wantGone("1")
	})
}

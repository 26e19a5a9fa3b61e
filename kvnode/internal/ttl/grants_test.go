package ttl

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/core"
)

// Without a leader lease, a quorum round comes before a revocation. A client that
// revokes and grants anew meanwhile keeps what it was granted; also if the format is
// raised, and both grants have the number 0.
func TestWhatIsGrantedWhileARevocationIsConfirmed(t *testing.T) {
	for _, raise := range []bool{false, true} {
		t.Run(fmt.Sprint("raise=", raise), func(t *testing.T) {
			inRigOf(t, store.FormatFirst, nil, func(t *testing.T, r *rig) {
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

// What is proposed just before the format is raised is void, and proposed anew at
// once: no client hears of it.
func TestWhatTheRaiseMakesVoidIsProposedAnew(t *testing.T) {
	inRigOf(t, store.FormatFirst, nil, func(t *testing.T, r *rig) {
		r.grant(1, 100)
		r.apply(1, &store.Command{Request: remembering(1, 50)}) // of a leader before
		r.lead(1)
		r.once(&r.proposing, r.raise)
		r.renew(1)
		r.wantRemaining(1, 0)
	})
	inRigOf(t, store.FormatFirst, nil, func(t *testing.T, r *rig) {
		r.grant(1, 2)
		r.lead(1)
		r.once(&r.proposing, r.raise)
		time.Sleep(2200 * time.Millisecond)
		r.wantGone("1")
	})
}

// In the first format a checkpoint would say an ID alone, and might shorten the life
// of what is granted under it meanwhile. So there are none.
func TestNoCheckpointsInTheFirstFormat(t *testing.T) {
	inRigOf(t, store.FormatFirst, everyMinute, func(t *testing.T, r *rig) {
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

package ttl

import (
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// Where answers take longer than the leader lease lasts it is never held, or now and then.
// A quorum confirms then that time is served.
func TestTimeIsServedWithoutALeaderLease(t *testing.T) {
	for _, s := range []core.Status{core.Expired, core.Margin} {
		inRig(t, nil, func(t *testing.T, r *rig) {
			r.mu.Lock()
			r.rounds = true
			r.mu.Unlock()
			r.lead(1)
			r.standing(s)
			r.grant(1, 10)
			time.Sleep(10*sec - 1)
			r.wantGone()
			time.Sleep(400 * time.Millisecond)
			r.wantGone("1")
		})
	}
}

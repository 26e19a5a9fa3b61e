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

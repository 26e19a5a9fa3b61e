package ttl

import (
	"testing"
	"testing/synctest"
	"time"
)

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
		if n := len(r.engine.reign.Load().due); n > 1024 {
			t.Errorf("%d in the queue, want few more than the 10 that there are", n)
		}
	})
}

package kvnode

import (
	"testing"
	"time"
)

// A loop that is held up says how late it was at its tick, once for all those
// that it has missed.
func TestLateness(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		if got := n.Status().Late; got.Count == 0 || got.Max != 0 || got.Within[0] != got.Count {
			t.Errorf("Late of an idle member = %+v, want ticks, and none late", got)
		}
		before := n.Status().Late
		const held = 25 * time.Second / 10
		n.call(func() { time.Sleep(held) })
		time.Sleep(n.cfg.TickInterval / 2)
		got := n.Status().Late
		if got.Max < held-n.cfg.TickInterval || got.Max > held || got.Sum != got.Max || got.Count != before.Count+1 {
			t.Errorf("Late = %+v after %v without a tick, want one late tick", got, held)
		}
		last := len(lateBounds) - 1
		if got.Within[last] != got.Count || got.Within[last-1] != got.Count-1 {
			t.Errorf("Late.Within = %v, want one tick between %v and %v", got.Within, lateBounds[last-1], lateBounds[last])
		}
	})
}

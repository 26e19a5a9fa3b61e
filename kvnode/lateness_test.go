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
		if got := n.Status().Late; got.Ticks == 0 || got.Max != 0 || got.Within[0] != got.Ticks {
			t.Errorf("Late of an idle member = %+v, want ticks, and none late", got)
		}
		before := n.Status().Late
		const held = 25 * time.Second / 10
		n.call(func() { time.Sleep(held) })
		time.Sleep(n.cfg.TickInterval / 2)
		got := n.Status().Late
		if got.Max < held-n.cfg.TickInterval || got.Max > held || got.Total != got.Max || got.Ticks != before.Ticks+1 {
			t.Errorf("Late = %+v after %v without a tick, want one late tick", got, held)
		}
		last := len(LateBounds) - 1
		if got.Within[last] != got.Ticks || got.Within[last-1] != got.Ticks-1 {
			t.Errorf("Late.Within = %v, want one tick between %v and %v", got.Within, LateBounds[last-1], LateBounds[last])
		}
	})
}

func TestLatenessCountsByBounds(t *testing.T) {
	var l lateness
	for _, late := range []time.Duration{-time.Second, 0, LateBounds[0], LateBounds[0] + 1, time.Hour} {
		l.note(late)
	}
	got := l.load()
	if got.Ticks != 5 || got.Within[0] != 3 || got.Within[1] != 4 || got.Within[len(got.Within)-1] != 4 || got.Max != time.Hour {
		t.Errorf("load() = %+v, want 3 ticks within the first bound, 4 within the second and one beyond all", got)
	}
}

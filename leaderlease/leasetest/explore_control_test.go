package leasetest

import (
	"math"
	"testing"
)

// controls are searches without an assumption of the claim. They must find a violation.
var controls = []menu{
	{
		name: "raft's own lease", begin: []string{"new election=4 stock=(1,2,3)", "elect 1", "isolate 1"}, depth: 3,
		steps: []string{"run 100ms", "usurp 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 1 key=7"},
	},
	{
		name: "a leader's clock stands still", begin: then(settled, "clock 1 stop"), depth: 3,
		steps: []string{"run 300ms", "isolate 1", "usurp 2 votes=(2,3) limit=10ms"},
	},
	{
		name: "a voter's clock jumps ahead", begin: torn, depth: 2,
		steps: []string{"run 100ms", "clock 2 step=1s", "usurp 3 votes=(2,3) limit=10ms"},
	},
}

func TestExploreFindsWhatBreaksTheClaim(t *testing.T) {
	for i := range controls {
		t.Run(controls[i].name, func(t *testing.T) {
			w := newWalk(t, &controls[i])
			w.search(w.m.depth, math.MaxInt)
			if w.bad == "" {
				t.Fatalf("nothing found: %s", w.report())
			}
			t.Logf("%s\n%s", w.bad, w.script(w.path))
		})
	}
}

func TestExploreRepeats(t *testing.T) {
	m := &menus[1]
	one := newWalk(t, m)
	one.search(2, math.MaxInt)
	two := newWalk(t, m)
	two.search(2, math.MaxInt)
	if one.states != two.states || one.plays != two.plays || one.goals != two.goals {
		t.Errorf("search %s: %d states of %d plays, and again %d of %d", m.name, one.states, one.plays, two.states, two.plays)
	}
}

package leasetest

// clockMenus have clocks that fail, step, or are disrupted.
var clockMenus = []menu{
	{
		name: "clocks", begin: torn, depth: 3,
		steps: []string{
			"run 100ms", "isolate 1", "clock 1 step=-10s", "clock 2 step=1s disrupt", "clock 2 step=-10s", "clock 1 fail", "clock 1 recover",
			"usurp 3 votes=(2,3) limit=10ms",
		},
		goals: []goal{goalRecovered},
	},
	{
		// A step that the margin does not cover, in a lease that runs out.
		name: "disrupted", begin: then(torn, "isolate 1"), depth: 4,
		steps: []string{"run 10ms", "run 300ms", "clock 1 step=-90ms disrupt", "clock 1 step=-10s", "clock 2 step=1s disrupt", "usurp 3 votes=(2,3) limit=10ms"},
	},
	{
		// The leader's clock cannot be read, and misses time meanwhile.
		name: "failing", begin: then(torn, "isolate 1", "clock 1 fail", "run 100ms"), depth: 4,
		steps: []string{"run 10ms", "run 100ms", "run 200ms", "clock 1 step=-290ms recover", "usurp 3 votes=(2,3) limit=10ms"},
	},
	{
		// Node 2, which is not bound, could not read its clock.
		name: "failed-voter", begin: then([]string{"new election=4"}, append(unheard, "clock 2 fail", "run 100ms", "clock 2 recover")...), depth: 3,
		steps: []string{"run 10ms", "run 100ms", "usurp 3 votes=(2,3) limit=10ms"},
		goals: []goal{goalSecond},
	},
	{
		// One reading was near the end of what can be counted.
		name: "spike", depth: 4,
		begin: then(torn, "clock 1 step=2562040h47m16s300ms", "run 100ms", "clock 1 step=-2562040h47m16s300ms", "run 100ms"),
		steps: []string{"run 10ms", "run 100ms", "run 300ms", "isolate 1", "usurp 3 votes=(2,3) limit=10ms"},
	},
	{
		name: "back", begin: then(settled, steppingBack(4)...), depth: 2,
		steps: []string{"run 100ms", "run 300ms", "read 1 key=7"},
		never: []goal{goalLease},
	},
	{
		name: "back-less", begin: then(settled, steppingBack(3)...), depth: 2,
		steps: []string{"run 100ms", "run 300ms", "read 1 key=7"},
		goals: []goal{goalRecovered},
	},
	{
		// A disruption comes between a reading and the marker.
		name: "within", begin: torn, depth: 4,
		steps: []string{
			"run 10ms", "run 100ms", "clock 1 step=-90ms within", "clock 2 step=1s within", "isolate 1", "crash 2", "restart 2", "usurp 3 votes=(2,3) limit=10ms",
		},
	},
	{
		// Node 2's clock is too fast, and node 1 has had the time to see it.
		name: "fast", begin: then(torn, "clock 2 rate=2", "run 2s"), depth: 3,
		steps: []string{"run 10ms", "run 50ms", "run 100ms", "isolate 1", "usurp 3 votes=(2,3) limit=10ms"},
		never: []goal{goalLease},
	},
	{
		// Node 2 has restarted, and no other node answers node 1.
		name: "restarted", begin: then(settled, "isolate 3", "crash 2", "restart 2", "run 400ms"), depth: 1,
		steps: []string{"run 10ms", "run 100ms"},
		goals: []goal{goalLease},
	},
}

func steppingBack(times int) (steps []string) {
	for range times {
		steps = append(steps, "clock 1 step=-1s", "run 100ms")
	}
	return steps
}

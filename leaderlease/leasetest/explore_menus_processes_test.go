package leasetest

// processMenus have crashes and slow disks.
var processMenus = []menu{
	{
		// A process that promises less than the one before it.
		name: "shorter", depth: 4,
		begin: []string{"new tick=50ms election=8", "elect 1", "split a=(1) b=(3)", "run 350ms", "configure 2 duration=150ms"},
		steps: []string{"run 100ms", "run 200ms", "isolate 1", "crash 2", "restart 2", "usurp 3 votes=(2,3) limit=10ms"},
	},
	{
		name: "disks", depth: 5,
		begin: []string{"new election=4 async", "elect 1", "hold type=MsgApp from=3", "disk 3 delay=10s"},
		steps: []string{
			"run 400ms", "transfer 1 to=3", "crash 3", "restart 3", "disk 3 delay=0ms", "usurp 3 votes=(1,2) limit=400ms",
		},
	},
	{
		name: "disks-copies", depth: 5,
		begin: []string{"new election=4 async", "elect 1", "hold type=MsgApp from=3", "mistake 3 copies", "disk 3 delay=10s"},
		steps: []string{"run 400ms", "transfer 1 to=3", "crash 3", "restart 3", "disk 3 delay=0ms", "usurp 3 votes=(1,2) limit=400ms"},
	},
	{
		// Node 3 has no term on its disk yet.
		name: "fresh", depth: 4,
		begin: []string{"new election=4 async", "disk 3 delay=10s", "elect 1", "split a=(1) b=(2)", "run 300ms", "disk 3 delay=0ms"},
		steps: []string{"run 100ms", "isolate 1", "crash 3", "restart 3", "usurp 2 votes=(2,3) limit=10ms", "usurp 3 votes=(2,3) limit=10ms"},
	},
	{
		// Node 2 does not call Ready once it has restarted.
		name: "never", depth: 4,
		begin: then(torn, "crash 2", "mistake 2 never"),
		steps: []string{"run 100ms", "run 200ms", "isolate 1", "restart 2", "usurp 3 votes=(2,3) limit=10ms"},
	},
	{
		// Node 2 has read a promise that was in memory only, and is a process that makes no
		// longer one by the time that the power fails.
		name: "power", depth: 4,
		begin: []string{
			"new election=4", "elect 1", "configure 1 duration=600ms skew=120ms max-promise=600ms long", "configure 2 max-promise=600ms", "crash 1", "restart 1",
			"crash 2", "saving 2 promise=600ms", "restart 2", "usurp 1 votes=(1,2,3)", "split a=(1) b=(3)", "run 700ms", "configure 2 max-promise=300ms",
		},
		steps: []string{"run 100ms", "run 300ms", "isolate 1", "crash 2 power", "restart 2", "usurp 3 votes=(2,3) limit=10ms"},
	},
	{
		// A late probe of node 3, for less than node 2 owes node 1, meets node 2 in its hold.
		name: "two-lengths", depth: 4,
		begin: []string{
			"new tick=50ms election=8 async", "configure 3 duration=150ms skew=30ms max-promise=300ms", "crash 3", "restart 3", "run 400ms", "usurp 3 votes=(1,2,3)", "run 300ms",
			"hold type=MsgHeartbeat from=3 to=2", "run 100ms", "pass", "disk 2 delay=10s", "transfer 3 to=1", "run 110ms", "split a=(1) b=(3)", "run 400ms",
			"isolate 1", "crash 2", "disk 2 delay=0ms", "restart 2",
		},
		steps: []string{"run 10ms", "run 160ms", "release type=MsgHeartbeat", "usurp 3 votes=(2,3) limit=10ms"},
	},
}

package leasetest

// deathMenus have processes that die, and death notices.
var deathMenus = []menu{
	{
		name: "dies", begin: []string{"new election=4", "elect 1"}, depth: 3,
		steps: []string{
			"run 10ms", "run 100ms", "isolate 1", "crash 1", "restart 1", "crash 2", "restart 2", "obituary 2 of=1", "obituary 3 of=1", "obituary 3 of=2",
			"hold type=(MsgHeartbeat,MsgVote)", "release type=MsgHeartbeat", "release type=MsgVote",
		},
		goals: []goal{goalVoided, goalReleased},
	},
	{
		// The death notice of a leader comes when the next process of its node leads.
		name: "lives", depth: 3,
		begin: []string{"new election=4 async", "elect 1", "run 100ms", "crash 1", "restart 1", "run 400ms", "usurp 1 votes=(2,3)", "run 100ms"},
		steps: []string{
			"run 10ms", "run 100ms", "run 400ms", "isolate 1", "crash 1", "restart 1", "obituary 2 of=1", "obituary 3 of=1", "usurp 3 votes=(2,3) limit=10ms",
		},
		goals: []goal{goalFormer, goalBound},
	},
	{
		// Node 2 has voted for node 3, which leads now, and knows of no promise but the one to node 1.
		name: "between-two", depth: 3,
		begin: []string{
			"new voters=(1,2,3,4,5) election=4 async", "elect 1", "run 100ms", "hold type=MsgHeartbeat to=2", "transfer 1 to=3", "run 110ms", "crash 1",
		},
		steps: []string{"run 10ms", "run 100ms", "isolate 3", "obituary 2 of=1", "obituary 4 of=1", "release type=MsgHeartbeat", "restart 1"},
		goals: []goal{goalSecond},
	},
	{
		// Node 2 has restarted, and holds for its promise to node 1, which has a lease. It has
		// received an old heartbeat of node 3 since, and then the death notice of node 3.
		name: "held-voter", depth: 4,
		begin: []string{
			"new voters=(1,2,3,4,5) tick=50ms election=8 async", "usurp 3 votes=(1,2,3,4,5)", "run 300ms", "hold type=MsgHeartbeat from=3 to=2", "run 100ms", "pass",
			"disk 2 delay=10s", "transfer 3 to=1", "run 10ms", "split a=(1) b=(4,5)", "run 110ms", "isolate 1", "crash 2", "disk 2 delay=0ms", "restart 2",
		},
		steps: []string{"run 10ms", "release type=MsgHeartbeat", "crash 3", "restart 3", "obituary 2 of=3", "usurp 4 votes=(2,4,5) limit=10ms"},
		goals: []goal{goalHeld},
	},
}

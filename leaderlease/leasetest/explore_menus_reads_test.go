package leasetest

// readMenus have reads that wait.
var readMenus = []menu{
	{
		name: "reads", begin: then(settled, "apply 1 delay=50ms"), depth: 3,
		steps: []string{
			"run 10ms", "run 100ms", "isolate 1", "write 1 key=7 nowait", "read 1 key=7", "read 2 key=7", "read 1 key=7 quorum",
			"invalidate 1", "usurp 2 votes=(1,2,3) limit=10ms",
		},
		goals: []goal{goalRound, goalForwarded, goalShared},
	},
	{
		// The state machine of node 2 is behind.
		name: "behind", begin: then(settled, "apply 2 delay=200ms"), depth: 3,
		steps: []string{"run 10ms", "run 100ms", "run 300ms", "write 1 key=7", "read 2 key=7", "read 2 key=7 quorum", "transfer 1 to=2"},
		goals: []goal{goalForwarded},
	},
	{
		// Heartbeats are rare: a round brings the lease back.
		name: "rounds", depth: 4,
		begin: []string{"new election=12 heartbeat=4", "elect 1", "run 100ms"},
		steps: []string{"run 10ms", "invalidate 1", "read 1 key=7", "read 2 key=7"},
		goals: []goal{goalJoined},
	},
	{
		// All answers to node 1 are late.
		name: "joins", depth: 4,
		begin: []string{"new election=4", "elect 1", "hold to=1", "run 100ms", "cut from=1 to=(2,3)", "run 300ms"},
		steps: []string{"run 100ms", "usurp 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 1 key=7", "release type=MsgHeartbeatResp"},
	},
	{
		// Node 4 follows the old leader.
		name: "forwarded", depth: 4,
		begin: []string{"new election=4 learners=(4)", "elect 1", "split a=(1,4) b=(2,3)"},
		steps: []string{"run 100ms", "run 300ms", "usurp 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 4 key=7 wait=10ms", "read 1 key=7"},
	},
	{
		// Node 2 begins to lead when node 3 has asked, and its state machine is behind.
		name: "kept", depth: 4,
		begin: []string{
			"new election=4 async", "elect 1", "apply 2 delay=1s", "hold type=MsgAppResp to=2", "transfer 1 to=2", "run 110ms", "read 3 key=7 wait=10ms",
		},
		steps: []string{"run 10ms", "release type=MsgAppResp"},
		goals: []goal{goalAhead},
	},
	{
		name: "doubtful", depth: 4, doubtful: true,
		begin: []string{"new election=4 learners=(4)", "elect 1", "clock 1 stop", "split a=(1,4) b=(2,3)"},
		steps: []string{"run 100ms", "run 300ms", "usurp 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 4 key=7 wait=10ms quorum", "read 1 key=7 quorum"},
	},
	{
		// Node 2 hears late, by a clock that stands still, that it leads; by then node 3 does.
		name: "renewed", depth: 3, doubtful: true,
		begin: []string{
			"new election=4 learners=(4)", "elect 1", "hold type=(MsgAppResp,MsgHeartbeatResp) to=2", "transfer 1 to=2", "run 110ms", "clock 2 stop",
			"hold from=(1,3) to=2", "cut from=2 to=(1,3)", "cut from=3 to=4", "run 400ms", "usurp 3 votes=(1,3) limit=10ms", "write 3 key=7",
		},
		steps: []string{"run 10ms", "read 4 key=7 wait=10ms quorum", "release type=MsgAppResp", "release type=MsgHeartbeatResp"},
	},
	{
		name: "asked", depth: 2,
		begin: []string{"new election=4 learners=(4)", "elect 1"},
		steps: []string{"run 10ms", "read 4 key=7 wait=10ms quorum"},
		goals: []goal{goalForwarded},
	},
	{
		// An answer to a read of node 4 comes when its process has ended.
		name: "answers", depth: 4,
		begin: []string{"new election=4 learners=(4)", "elect 1", "hold type=(MsgReadIndexResp,MsgApp) to=4", "read 4 key=7", "run 10ms", "crash 4", "restart 4", "run 100ms"},
		steps: []string{"run 100ms", "write 1 key=7", "read 4 key=7", "release type=MsgReadIndexResp"},
	},
	{
		name: "applies", depth: 4,
		begin: []string{"new election=4 async", "elect 1", "apply 1 delay=1s", "fill 1"},
		steps: []string{"run 10ms", "run 100ms", "write 1 key=7 nowait", "read 1 key=7", "read 2 key=7"},
		goals: []goal{goalAhead},
	},
	{
		// Reads are given up, also while they begin to wait.
		name: "given-up", begin: then(settled, "apply 1 delay=50ms", "write 1 key=7"), depth: 4,
		steps: []string{"run 100ms", "isolate 1", "read 1 key=7 cancel=later", "read 1 key=7 quorum cancel=early", "read 2 key=7 cancel=early", "cancel", "forget 2"},
	},
	{
		// A round was lost, and its reader has given up.
		name: "lost-round", depth: 2,
		begin: []string{"new election=4 learners=(4)", "elect 1", "hold type=MsgReadIndex", "read 4 key=7 cancel=later", "cancel", "run 300ms", "pass"},
		steps: []string{"run 10ms", "read 4 key=7 wait=10ms"},
		goals: []goal{goalForwarded},
	},
	{
		// Work ends with the lease, and asks its context nothing under the lock. A tick is an
		// hour, since the timers of work are the operating system's.
		name: "work", begin: []string{"new tick=1h election=4", "campaign 1", "run 1h"}, depth: 4,
		steps: []string{"run 1h", "run 4h", "isolate 1", "invalidate 1", "work 1", "cancel", "close 1"},
	},
	{
		// Node 1 begins to lead while a reader reads its clock.
		name: "overlapping", depth: 3,
		begin: []string{"new election=4", "elect 2", "isolate 1", "write 2 key=7", "run 100ms"},
		steps: []string{"run 10ms", "run 100ms", "heal", "overlap 1 key=7 from=2 by=350ms", "overlap 1 key=7 from=2 by=350ms waits"},
	},
	{
		// Node 1 is of a version that makes no rounds for others.
		name: "old-leader", depth: 4, doubtful: true,
		begin: []string{"new election=4 learners=(4)", "elect 1", "old 1", "clock 1 stop", "split a=(1,4) b=(2,3)"},
		steps: []string{"run 300ms", "usurp 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 4 key=7 wait=10ms quorum"},
	},
}

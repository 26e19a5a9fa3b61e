package leasetest

import "slices"

var sole = []string{"new election=4 voters=(1) spares=(2,3)", "elect 1"}

// memberMenus have other configurations than that of three voters.
var memberMenus = []menu{
	{
		name: "grow", depth: 3,
		begin: sole,
		steps: []string{
			"run 100ms", "run 300ms", "change 1 add=(2,3)", "change 1 add=2", "isolate 1", "heal", "apply 1 delay=200ms", "force-elect 2 votes=(2,3) limit=10ms",
		},
		goals: []goal{goalLease, goalConf},
	},
	{
		// Node 1 does not say what configuration it has applied.
		name: "forgets", depth: 4,
		begin: then(sole, "mistake 1 forgets"),
		steps: []string{"run 300ms", "change 1 add=(2,3)", "change 1 add=2", "change 1 add=3", "isolate 1", "force-elect 2 votes=(2,3) limit=10ms", "mistake 1 none"},
		goals: []goal{goalHealed},
	},
	{
		// Two changes are being made at a time.
		name: "pending", begin: changing, depth: 4, steps: changes,
		goals: []goal{goalConf},
	},
	{
		name: "twice", begin: then(changing, "mistake 1 twice"), depth: 3, steps: changes,
		goals: []goal{goalConf},
	},
	{
		name: "repeats", begin: then(changing, "mistake 1 repeats"), depth: 3, steps: changes,
		goals: []goal{goalConf},
	},
	{
		name: "old", begin: then(changing, "mistake 1 old", "change 1 add=4", "run 100ms"), depth: 3, steps: changes,
		never: []goal{goalLease},
	},
	{
		name: "ahead", begin: then(changing, "mistake 1 ahead"), depth: 4, steps: changes,
	},
	{
		name: "again", begin: then(changing, "mistake 1 again"), depth: 4, steps: changes,
		goals: []goal{goalConf},
	},
	{
		// Node 1 is a voter no more.
		name: "leaves", begin: then(settled, "run 100ms"), depth: 3,
		steps: []string{"run 10ms", "run 100ms", "run 300ms", "change 1 remove=1", "change 1 learner=1", "isolate 1", "force-elect 2 votes=(2,3) limit=10ms"},
	},
	{
		// A state machine outlives its process, with the changes that it has.
		name: "outlives", depth: 2,
		begin: []string{"new election=4 voters=(1) spares=(2) durable", "elect 1", "change 1 learner=2", "run 100ms", "checkpoint 1", "crash 1", "restart 1", "run 400ms"},
		steps: []string{"run 100ms", "elect 1", "write 1 key=7 nowait", "read 2 key=7"},
		goals: []goal{goalLease},
	},
	{
		// Node 1 has not the changes that it says it has.
		name: "claims", depth: 3,
		begin: []string{"new election=4 voters=(1) spares=(2,3)", "elect 1", "change 1 add=(2,3)", "run 100ms", "mistake 1 claims", "crash 1", "restart 1", "run 400ms"},
		steps: []string{"run 100ms", "campaign 1", "isolate 1", "heal", "force-elect 2 votes=(2,3) limit=10ms"},
	},
	{
		// Node 3 has died between its state machine's snapshot and its log's.
		name: "ahead-of-log", depth: 2,
		begin: []string{
			"new election=4 durable", "elect 1", "isolate 3", "write 1 key=7", "run 300ms", "compact 1", "run 200ms", "hold type=MsgSnap", "heal",
			"run 150ms", "disk 3 delay=1s", "release type=MsgSnap", "crash 3", "disk 3 delay=0ms", "restart 3", "pass", "run 100ms",
		},
		steps: []string{"run 100ms", "read 3 key=7 wait=100ms", "write 1 key=7"},
		goals: []goal{goalForwarded},
	},
	{
		// The same, but a change before the snapshot is reported again after it.
		name: "late-change", depth: 2,
		begin: []string{
			"new election=4 spares=(4) durable", "elect 1", "isolate 3", "change 1 add=4", "run 300ms", "compact 1", "run 200ms", "hold type=MsgSnap", "heal",
			"run 150ms", "disk 3 delay=1s", "release type=MsgSnap", "crash 3", "disk 3 delay=0ms", "mistake 3 twice", "restart 3", "pass", "run 400ms", "transfer 1 to=3",
		},
		steps: []string{"run 10ms", "run 110ms", "run 200ms"},
		goals: []goal{goalSecond},
	},
	{
		// Node 1 knows that node 2 is removed, before it does itself.
		name: "shrink", depth: 4,
		begin: []string{"new election=4 voters=(1,2) async", "elect 2", "apply 2 delay=2s", "fill 2"},
		steps: []string{"run 100ms", "change 2 remove=2", "isolate 2", "force-elect 1 votes=(1) limit=10ms", "force-elect 1 votes=(1) limit=400ms", "burst 1 ticks=20"},
		goals: []goal{goalLease, goalConf},
	},
	{
		name: "shrink-late", depth: 4,
		begin: []string{"new election=4 voters=(1,2) async", "elect 2", "apply 2 delay=2s"},
		steps: []string{"run 100ms", "change 2 remove=2", "isolate 2", "force-elect 1 votes=(1) limit=10ms", "burst 1 ticks=20"},
	},
	{
		name: "shrink-sync", depth: 4,
		begin: []string{"new election=4 voters=(1,2) early=(2)", "elect 2", "apply 2 delay=2s", "fill 2"},
		steps: []string{"run 100ms", "change 2 remove=2", "isolate 2", "force-elect 1 votes=(1) limit=10ms", "burst 1 ticks=20"},
	},
	{
		// Node 3 leads; it has its configuration from a snapshot.
		name: "snapshot", depth: 4,
		begin: []string{
			"new election=4 spares=(4,5)", "elect 1", "isolate 3", "change 1 add=(4,5)", "run 100ms", "write 1 key=7", "compact 1",
			"heal", "run 300ms", "transfer 1 to=3", "run 200ms",
		},
		steps: []string{"run 100ms", "run 400ms", "split a=(1,3) b=(2,4,5)", "force-elect 4 votes=(2,4,5) limit=10ms", "isolate 3"},
		goals: []goal{goalLease},
	},
	{
		// A sole voter has forgotten its commit index, and begins to lead.
		name: "sole", begin: forgetful("new election=4 voters=(1) learners=(2)", "run 300ms"), depth: 4, steps: remembering,
	},
	{
		name: "sole-async", begin: forgetful("new election=4 voters=(1) learners=(2) async", "run 300ms"), depth: 4, steps: remembering,
	},
	{
		// The loop is late with a Ready, in which raft answers an early read request.
		name: "sole-lag", depth: 5,
		begin: then(forgetful("new election=4 voters=(1) learners=(2) async", "overtake 1 type=MsgReadIndex by=200ms", "run 300ms")[:12], "run 500ms"),
		steps: []string{"run 110ms", "run 400ms", "lag 1 by=400ms", "read 1 key=7 quorum", "read 2 key=7 raft"},
	},
	{
		// Node 2's log is behind what node 3 begins with, which has heard of no term.
		name: "adopted", depth: 2,
		begin: []string{
			"new election=4 voters=(1,2,3,4,5)", "crash 3", "isolate 2", "split a=(3) b=(1,4,5)", "elect 1", "write 1 key=7", "adopt 3 from=1", "join 2 3", "restart 3",
		},
		steps: []string{"run 100ms", "campaign 2", "campaign 3", "force-elect 2 votes=(2,3) limit=10ms"},
	},
	{
		// The same without a Lease at the leader: its reads are stale, and those of node 2 are not.
		name: "plain", begin: forgetful("new election=4 voters=(1) learners=(2) async plain=(1)"), depth: 4,
		steps: []string{"run 10ms", "run 110ms", "run 300ms", "read 2 key=7 wait=10ms", "release type=MsgApp"},
	},
}

// In changing node 1 advances before it applies, which takes it a while.
var (
	changing = []string{"new election=4 early=(1) spares=(4,5)", "elect 1", "apply 1 delay=50ms"}
	changes  = []string{"run 10ms", "run 100ms", "change 1 add=4", "change 1 add=5", "isolate 1"}
)

func forgetful(first string, more ...string) []string {
	return slices.Concat([]string{
		first, "elect 1", "write 1 key=7", "run 150ms", "hold type=MsgApp to=2", "write 1 key=7", "crash 1", "disk 1 delay=300ms", "restart 1",
	}, more, []string{"campaign 1", "run 600ms"})
}

var remembering = []string{"run 10ms", "run 110ms", "run 300ms", "read 1 key=7", "read 2 key=7 wait=10ms", "release type=MsgApp"}

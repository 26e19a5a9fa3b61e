package leasetest

import (
	"slices"
)

// menu is a search through every script that begins with begin and continues with steps.
// Each search has one kind of fault, which keeps it small.
type menu struct {
	name         string
	begin, steps []string
	// depth is how many steps are wanted.
	depth int
	// doubtful is set if a clock breaks the assumptions.
	doubtful bool
	// goals must be reached in this search; never must not be.
	goals, never []goal
}

var menus = slices.Concat(electionMenus, clockMenus, processMenus, deathMenus, memberMenus, readMenus)

// In settled a leader has a lease; D is 300 ms with a margin of 60 ms. In torn, node 3 no
// longer receives the leader's messages and is not bound. In unheard, no node receives
// them, and none is bound.
var (
	settled = []string{"new election=4", "elect 1"}
	torn    = []string{"new election=4", "elect 1", "split a=(1) b=(3)", "run 300ms"}
	unheard = []string{"elect 1", "isolate 1", "run 300ms"}
)

func then(begin []string, more ...string) []string { return slices.Concat(begin, more) }

var electionMenus = []menu{
	{
		name: "settled", begin: settled, depth: 3,
		steps: []string{
			"run 100ms", "run 200ms", "isolate 1", "heal", "forget 2", "campaign 2",
			"force-elect 2 votes=(2,3) limit=10ms", "force-elect 3 votes=(1,2,3) limit=10ms",
			"write 1 key=7 nowait", "read 1 key=7", "invalidate 1", "close 1", "crash 2", "restart 2",
		},
		goals: []goal{goalLease, goalExpired, goalAtOnce},
	},
	{
		name: "torn", begin: torn, depth: 3,
		steps: []string{
			"run 100ms", "run 200ms", "isolate 1", "join 1 3", "crash 2", "restart 2", "crash 1", "restart 1",
			"force-elect 2 votes=(2,3) limit=10ms", "force-elect 3 votes=(2,3) limit=10ms", "force-elect 3 votes=(1,3) limit=10ms",
			"write 1 key=7 nowait", "read 1 key=7", "read 2 key=7",
		},
		goals: []goal{goalLease, goalExpired, goalBound, goalHeld},
	},
	{
		name: "transfers", begin: settled, depth: 3,
		steps: []string{
			"run 100ms", "run 400ms", "isolate 1", "heal", "split a=(1) b=(3)", "transfer 1 to=2", "transfer 1 to=3",
			"hold type=(MsgTimeoutNow,MsgVote)", "pass", "release type=MsgTimeoutNow", "release type=MsgVote",
		},
		goals: []goal{goalSecond, goalReleased},
	},
	{
		// Leaders resign, and live on or die. Resigning without leading does nothing.
		name: "resigns", begin: settled, depth: 3,
		steps: []string{
			"run 10ms", "run 100ms", "run 600ms", "isolate 1", "heal", "resign 1 to=2", "resign 1 to=3", "resign 2 to=3", "transfer 1 to=3", "crash 1", "restart 1",
			"hold type=(MsgTimeoutNow,MsgVote)", "pass", "release type=MsgTimeoutNow", "release type=MsgVote",
		},
		goals: []goal{goalSecond, goalReleased, goalResigned, goalForgone},
	},
	{
		// The loop of node 3 hangs. Raft has made it a follower, and it has promised to the new
		// leader, by a clock that is far behind its own.
		name: "hanging-word", depth: 3,
		begin: []string{
			"new election=4", "elect 3", "hold type=(MsgVote,MsgHeartbeat,MsgApp) to=3", "transfer 3 to=1", "run 10ms", "lag 3 by=215ms", "pass", "release type=MsgVote", "drop", "run 210ms",
		},
		steps: []string{"run 10ms", "run 100ms", "resign 3 to=2", "resign 3 to=1", "isolate 1", "force-elect 2 votes=(2,3) limit=10ms"},
		goals: []goal{goalSecond},
	},
	{
		// The MsgTimeoutNow of a resignation is late: the next process of its sender leads.
		name: "late-word", depth: 3,
		begin: []string{
			"new election=4 async", "elect 1", "hold type=MsgTimeoutNow to=2", "resign 1 to=2", "pass", "run 10ms", "crash 1", "restart 1", "run 400ms", "elect 1", "run 100ms",
		},
		steps: []string{"run 10ms", "run 200ms", "isolate 1", "release type=MsgTimeoutNow", "force-elect 3 votes=(2,3) limit=10ms", "resign 1 to=3", "resign 2 to=3"},
		goals: []goal{goalBound},
	},
	{
		// A promise ends between two ticks.
		name: "between", begin: []string{"new election=6 duration=390ms skew=65ms", "elect 1"}, depth: 3,
		steps: []string{"run 10ms", "run 100ms", "run 390ms", "isolate 1", "force-elect 2 votes=(2,3) limit=10ms", "read 1 key=7"},
	},
	{
		// The MsgTimeoutNow of a transfer that is given up comes late, to a node that is not
		// bound.
		name: "late", depth: 4,
		begin: []string{"new tick=50ms election=20 duration=300ms", "elect 1", "hold type=MsgTimeoutNow", "transfer 1 to=3", "split a=(1) b=(3)"},
		steps: []string{
			"run 10ms", "run 100ms", "run 1100ms", "isolate 1", "join 1 3", "split a=(1) b=(3)", "release type=MsgTimeoutNow", "hold type=MsgVote to=1",
		},
	},
	{
		// What a transfer releases was promised before it, however long it takes.
		name: "probing", depth: 3,
		begin: []string{
			"new tick=50ms election=20 duration=300ms", "elect 1", "run 100ms", "hold type=MsgTimeoutNow", "transfer 1 to=3", "run 110ms", "pass",
		},
		steps: []string{"run 10ms", "run 50ms", "release type=MsgTimeoutNow"},
		goals: []goal{goalReleased},
	},
	{
		name: "overtaken", begin: overtaken("new election=4"), depth: 5, steps: overtaking,
	},
	{
		name: "overtaken-async", begin: overtaken("new election=4 async"), depth: 5, steps: overtaking,
	},
	{
		name: "copies", begin: then(overtaken("new election=4"), "mistake 2 copies", "mistake 3 copies"), depth: 5, steps: overtaking,
	},
	{
		name: "copies-async", begin: then(overtaken("new election=4 async"), "mistake 2 copies", "mistake 3 copies"), depth: 5, steps: overtaking,
	},
	{
		name: "forced", begin: then(torn, "overtake 2 type=MsgTimeoutNow by=600ms"), depth: 4,
		steps: []string{"run 100ms", "run 200ms", "run 400ms", "transfer 1 to=2", "isolate 1"},
	},
	{
		// Answers come when node 2 is bound once more.
		name: "answered", begin: slices.Concat([]string{"new election=4"}, unheard, []string{"hold type=(MsgVoteResp,MsgPreVoteResp) to=2"}), depth: 4,
		steps: []string{"run 100ms", "force-elect 2 votes=(2,3) limit=10ms", "heal", "release type=MsgPreVoteResp", "release type=MsgVoteResp"},
	},
}

// In overtaken, node 3 can hear node 1 again while a vote waits for its raft.
func overtaken(first string) []string {
	return slices.Concat([]string{first}, unheard, []string{"overtake 3 type=MsgVote by=150ms"})
}

var overtaking = []string{"run 100ms", "join 1 3", "forget 3", "force-elect 2 votes=(2,3) limit=10ms"}

// clockMenus have clocks that fail, step, or are disrupted.
var clockMenus = []menu{
	{
		name: "clocks", begin: torn, depth: 3,
		steps: []string{
			"run 100ms", "isolate 1", "clock 1 step=-10s", "clock 2 step=1s disrupt", "clock 2 step=-10s", "clock 1 fail", "clock 1 recover",
			"force-elect 3 votes=(2,3) limit=10ms",
		},
		goals: []goal{goalRecovered},
	},
	{
		// A step that the margin does not cover, in a lease that runs out.
		name: "disrupted", begin: then(torn, "isolate 1"), depth: 4,
		steps: []string{"run 10ms", "run 300ms", "clock 1 step=-90ms disrupt", "clock 1 step=-10s", "clock 2 step=1s disrupt", "force-elect 3 votes=(2,3) limit=10ms"},
	},
	{
		// The leader's clock cannot be read, and misses time meanwhile.
		name: "failing", begin: then(torn, "isolate 1", "clock 1 fail", "run 100ms"), depth: 4,
		steps: []string{"run 10ms", "run 100ms", "run 200ms", "clock 1 step=-290ms recover", "force-elect 3 votes=(2,3) limit=10ms"},
	},
	{
		// Node 2, which is not bound, could not read its clock.
		name: "failed-voter", begin: then([]string{"new election=4"}, append(unheard, "clock 2 fail", "run 100ms", "clock 2 recover")...), depth: 3,
		steps: []string{"run 10ms", "run 100ms", "force-elect 3 votes=(2,3) limit=10ms"},
		goals: []goal{goalSecond},
	},
	{
		// One reading was near the end of what can be counted.
		name: "spike", depth: 4,
		begin: then(torn, "clock 1 step=2562040h47m16s300ms", "run 100ms", "clock 1 step=-2562040h47m16s300ms", "run 100ms"),
		steps: []string{"run 10ms", "run 100ms", "run 300ms", "isolate 1", "force-elect 3 votes=(2,3) limit=10ms"},
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
			"run 10ms", "run 100ms", "clock 1 step=-90ms within", "clock 2 step=1s within", "isolate 1", "crash 2", "restart 2", "force-elect 3 votes=(2,3) limit=10ms",
		},
	},
	{
		// Node 2's clock is too fast, and node 1 has had the time to see it. Another leader, after 300 ms
		// without node 1, has not, and holds a lease.
		name: "fast", begin: then(torn, "clock 2 rate=2", "run 2s"), depth: 3,
		steps: []string{"run 10ms", "run 50ms", "run 100ms", "isolate 1", "force-elect 3 votes=(2,3) limit=10ms"},
		never: []goal{goalNode1},
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

// processMenus have crashes and slow disks.
var processMenus = []menu{
	{
		// A process that promises less than the one before it.
		name: "shorter", depth: 4,
		begin: []string{"new tick=50ms election=8", "elect 1", "split a=(1) b=(3)", "run 350ms", "configure 2 duration=150ms"},
		steps: []string{"run 100ms", "run 200ms", "isolate 1", "crash 2", "restart 2", "force-elect 3 votes=(2,3) limit=10ms"},
	},
	{
		name: "disks", depth: 5,
		begin: []string{"new election=4 async", "elect 1", "hold type=MsgApp from=3", "disk 3 delay=10s"},
		steps: []string{
			"run 400ms", "transfer 1 to=3", "crash 3", "restart 3", "disk 3 delay=0ms", "force-elect 3 votes=(1,2) limit=400ms",
		},
	},
	{
		name: "disks-copies", depth: 5,
		begin: []string{"new election=4 async", "elect 1", "hold type=MsgApp from=3", "mistake 3 copies", "disk 3 delay=10s"},
		steps: []string{"run 400ms", "transfer 1 to=3", "crash 3", "restart 3", "disk 3 delay=0ms", "force-elect 3 votes=(1,2) limit=400ms"},
	},
	{
		// Node 3 has no term on its disk yet.
		name: "fresh", depth: 4,
		begin: []string{"new election=4 async", "disk 3 delay=10s", "elect 1", "split a=(1) b=(2)", "run 300ms", "disk 3 delay=0ms"},
		steps: []string{"run 100ms", "isolate 1", "crash 3", "restart 3", "force-elect 2 votes=(2,3) limit=10ms", "force-elect 3 votes=(2,3) limit=10ms"},
	},
	{
		// Node 2 does not call Ready once it has restarted.
		name: "never", depth: 4,
		begin: then(torn, "crash 2", "mistake 2 never"),
		steps: []string{"run 100ms", "run 200ms", "isolate 1", "restart 2", "force-elect 3 votes=(2,3) limit=10ms"},
	},
	{
		// Node 2 has read a promise that was in memory only, and is a process that makes no
		// longer one by the time that the power fails.
		name: "power", depth: 4,
		begin: []string{
			"new election=4", "elect 1", "configure 1 duration=600ms skew=120ms max-promise=600ms long", "configure 2 max-promise=600ms", "crash 1", "restart 1",
			"crash 2", "saving 2 promise=600ms", "restart 2", "force-elect 1 votes=(1,2,3)", "split a=(1) b=(3)", "run 700ms", "configure 2 max-promise=300ms",
		},
		steps: []string{"run 100ms", "run 300ms", "isolate 1", "crash 2 power", "restart 2", "force-elect 3 votes=(2,3) limit=10ms"},
	},
	{
		// A late probe of node 3, for less than node 2 owes node 1, meets node 2 in its hold.
		name: "two-lengths", depth: 4,
		begin: []string{
			"new tick=50ms election=8 async", "configure 3 duration=150ms skew=30ms max-promise=300ms", "crash 3", "restart 3", "run 400ms", "force-elect 3 votes=(1,2,3)", "run 300ms",
			"hold type=MsgHeartbeat from=3 to=2", "run 100ms", "pass", "disk 2 delay=10s", "transfer 3 to=1", "run 110ms", "split a=(1) b=(3)", "run 400ms",
			"isolate 1", "crash 2", "disk 2 delay=0ms", "restart 2",
		},
		steps: []string{"run 10ms", "run 160ms", "release type=MsgHeartbeat", "force-elect 3 votes=(2,3) limit=10ms"},
	},
}

// deathMenus have processes that die, and death notices.
var deathMenus = []menu{
	{
		name: "dies", begin: []string{"new election=4", "elect 1"}, depth: 3,
		steps: []string{
			"run 10ms", "run 100ms", "isolate 1", "crash 1", "restart 1", "crash 2", "restart 2", "process-died 2 of=1", "process-died 3 of=1", "process-died 3 of=2",
			"hold type=(MsgHeartbeat,MsgVote)", "release type=MsgHeartbeat", "release type=MsgVote",
		},
		goals: []goal{goalVoided, goalReleased},
	},
	{
		// The death notice of a leader comes when the next process of its node leads.
		name: "lives", depth: 3,
		begin: []string{"new election=4 async", "elect 1", "run 100ms", "crash 1", "restart 1", "run 400ms", "force-elect 1 votes=(2,3)", "run 100ms"},
		steps: []string{
			"run 10ms", "run 100ms", "run 400ms", "isolate 1", "crash 1", "restart 1", "process-died 2 of=1", "process-died 3 of=1", "force-elect 3 votes=(2,3) limit=10ms",
		},
		goals: []goal{goalFormer, goalBound},
	},
	{
		// Node 2 has voted for node 3, which leads now, and has made only its promise to node 1.
		name: "between-two", depth: 3,
		begin: []string{
			"new voters=(1,2,3,4,5) election=4 async", "elect 1", "run 100ms", "hold type=MsgHeartbeat to=2", "transfer 1 to=3", "run 110ms", "crash 1",
		},
		steps: []string{"run 10ms", "run 100ms", "isolate 3", "process-died 2 of=1", "process-died 4 of=1", "release type=MsgHeartbeat", "restart 1"},
		goals: []goal{goalSecond},
	},
	{
		// Node 2 has restarted, and holds for its promise to node 1, which has a lease. It has
		// received an old heartbeat of node 3 since, and then the death notice of node 3.
		name: "held-voter", depth: 4,
		begin: []string{
			"new voters=(1,2,3,4,5) tick=50ms election=8 async", "force-elect 3 votes=(1,2,3,4,5)", "run 300ms", "hold type=MsgHeartbeat from=3 to=2", "run 100ms", "pass",
			"disk 2 delay=10s", "transfer 3 to=1", "run 10ms", "split a=(1) b=(4,5)", "run 110ms", "isolate 1", "crash 2", "disk 2 delay=0ms", "restart 2",
		},
		steps: []string{"run 10ms", "release type=MsgHeartbeat", "crash 3", "restart 3", "process-died 2 of=3", "force-elect 4 votes=(2,4,5) limit=10ms"},
		goals: []goal{goalHeld},
	},
}

// readMenus have reads that wait.
var readMenus = []menu{
	{
		name: "reads", begin: then(settled, "apply 1 delay=50ms"), depth: 3,
		steps: []string{
			"run 10ms", "run 100ms", "isolate 1", "write 1 key=7 nowait", "read 1 key=7", "read 2 key=7", "read 1 key=7 quorum",
			"invalidate 1", "force-elect 2 votes=(1,2,3) limit=10ms",
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
		steps: []string{"run 100ms", "force-elect 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 1 key=7", "release type=MsgHeartbeatResp"},
	},
	{
		// Node 4 follows the old leader.
		name: "forwarded", depth: 4,
		begin: []string{"new election=4 learners=(4)", "elect 1", "split a=(1,4) b=(2,3)"},
		steps: []string{"run 100ms", "run 300ms", "force-elect 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 4 key=7 wait=10ms", "read 1 key=7"},
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
		steps: []string{"run 100ms", "run 300ms", "force-elect 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 4 key=7 wait=10ms quorum", "read 1 key=7 quorum"},
	},
	{
		// Node 2 is elected late, with a clock that stands still; by then node 3 leads.
		name: "renewed", depth: 3, doubtful: true,
		begin: []string{
			"new election=4 learners=(4)", "elect 1", "hold type=(MsgAppResp,MsgHeartbeatResp) to=2", "transfer 1 to=2", "run 110ms", "clock 2 stop",
			"hold from=(1,3) to=2", "cut from=2 to=(1,3)", "cut from=3 to=4", "run 400ms", "force-elect 3 votes=(1,3) limit=10ms", "write 3 key=7",
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
		steps: []string{"run 300ms", "force-elect 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 4 key=7 wait=10ms quorum"},
	},
}

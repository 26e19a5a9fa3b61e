package leasetest

import "slices"

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
			"usurp 2 votes=(2,3) limit=10ms", "usurp 3 votes=(1,2,3) limit=10ms",
			"write 1 key=7 nowait", "read 1 key=7", "invalidate 1", "close 1", "crash 2", "restart 2",
		},
		goals: []goal{goalLease, goalExpired, goalAtOnce},
	},
	{
		name: "torn", begin: torn, depth: 3,
		steps: []string{
			"run 100ms", "run 200ms", "isolate 1", "join 1 3", "crash 2", "restart 2", "crash 1", "restart 1",
			"usurp 2 votes=(2,3) limit=10ms", "usurp 3 votes=(2,3) limit=10ms", "usurp 3 votes=(1,3) limit=10ms",
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
		steps: []string{"run 10ms", "run 100ms", "resign 3 to=2", "resign 3 to=1", "isolate 1", "usurp 2 votes=(2,3) limit=10ms"},
		goals: []goal{goalSecond},
	},
	{
		// The MsgTimeoutNow of a resignation is late: the next process of its sender leads.
		name: "late-word", depth: 3,
		begin: []string{
			"new election=4 async", "elect 1", "hold type=MsgTimeoutNow to=2", "resign 1 to=2", "pass", "run 10ms", "crash 1", "restart 1", "run 400ms", "elect 1", "run 100ms",
		},
		steps: []string{"run 10ms", "run 200ms", "isolate 1", "release type=MsgTimeoutNow", "usurp 3 votes=(2,3) limit=10ms", "resign 1 to=3", "resign 2 to=3"},
		goals: []goal{goalBound},
	},
	{
		// A promise ends between two ticks.
		name: "between", begin: []string{"new election=6 duration=390ms skew=65ms", "elect 1"}, depth: 3,
		steps: []string{"run 10ms", "run 100ms", "run 390ms", "isolate 1", "usurp 2 votes=(2,3) limit=10ms", "read 1 key=7"},
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
		steps: []string{"run 100ms", "usurp 2 votes=(2,3) limit=10ms", "heal", "release type=MsgPreVoteResp", "release type=MsgVoteResp"},
	},
}

// In overtaken, node 3 can hear node 1 again while a vote waits for its raft.
func overtaken(first string) []string {
	return slices.Concat([]string{first}, unheard, []string{"overtake 3 type=MsgVote by=150ms"})
}

var overtaking = []string{"run 100ms", "join 1 3", "forget 3", "usurp 2 votes=(2,3) limit=10ms"}

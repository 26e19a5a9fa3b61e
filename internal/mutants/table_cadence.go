package main

// cadences break when the raft loop ticks.
var cadences = []Mutant{
	{
		Rule: "cadence", Name: "a tick goes with each heartbeat, due or not", Pkg: "./kvnode", Test: "^TestBurstsAreOneTick$",
		File: "kvnode/cadence.go",
		Old:  "\tc.now = !now.Before(c.due.Add(-c.interval / slackPart))\n",
		New:  "\tc.now = true\n",
	},
	{
		Rule: "cadence", Name: "ticks that go early add up", Pkg: "./kvnode", Test: "^TestTicksGoWithHeartbeats$",
		File: "kvnode/cadence.go",
		Old:  "\tc.due = c.due.Add(c.interval)\n",
		New:  "\tc.due = now.Add(c.interval - c.interval/slackPart)\n",
	},
	{
		Rule: "cadence", Name: "missed ticks are made up for", Pkg: "./kvnode", Test: "^TestBurstsAreOneTick$",
		File: "kvnode/cadence.go",
		Old:  " || c.due.Before(now) {\n",
		New:  " {\n",
	},
	{
		Rule: "cadence", Name: "a tick that has waited does not move the next", Pkg: "./kvnode", Test: "^TestTicksGoWithHeartbeats$",
		File: "kvnode/cadence.go",
		Old:  "\tif waited || ",
		New:  "\tif waited && false || ",
	},
	{
		Rule: "cadence", Name: "a member without a leader waits for heartbeats", Pkg: "./kvnode", Test: "^TestTicksWithoutHeartbeats$",
		File: "kvnode/cadence.go",
		Old:  "\tif c.heard {\n",
		New:  "\tif true {\n",
	},
	{
		Rule: "cadence", Name: "heartbeats are not told", Pkg: "./kvnode", Test: "^TestFollowersTickWithHeartbeats$",
		File: "kvnode/failover.go",
		Old:  "\t\t\tl.cadence.beat(now)\n",
		New:  "",
	},
	{
		Rule: "cadence", Name: "a former leader's heartbeats slow the next one's down", Pkg: "./kvnode", Test: "^TestALeaderTicksByItsClock$",
		File: "kvnode/failover.go",
		Old:  "\t\tif l.role != raft.StateLeader { // a leader",
		New:  "\t\tif true { // a leader",
	},
	{
		Rule: "cadence", Name: "no tick goes with a heartbeat", Pkg: "./kvnode", Test: "^TestFollowersTickWithHeartbeats$",
		File: "kvnode/loop.go",
		Old:  "\t\tif l.cadence.now {\n",
		New:  "\t\tif false {\n",
	},
	{
		Rule: "cadence", Name: "no tick goes early with a heartbeat", Pkg: "./kvnode", Test: "^TestHowEarlyATickMayGo$",
		File: "kvnode/cadence.go",
		Old:  "\tc.now = !now.Before(c.due.Add(-c.interval / slackPart))\n",
		New:  "\tc.now = !now.Before(c.due)\n",
	},
	{
		Rule: "cadence", Name: "a heartbeat that comes at another time is not waited for", Pkg: "./kvnode", Test: "^TestTicksGoWithHeartbeats$",
		File: "kvnode/cadence.go",
		Old:  "\tc.heard = true\n",
		New:  "",
	},
	{
		Rule: "cadence", Name: "who has heard a leader once waits at each tick", Pkg: "./kvnode", Test: "^TestTicksWithoutHeartbeats$",
		File: "kvnode/cadence.go",
		Old:  "\tc.heard, c.now = c.now, false\n",
		New:  "\tc.now = false\n",
	},
	{
		Rule: "cadence", Name: "a leader's lateness adds up", Pkg: "./kvnode", Test: "^TestLatenessDoesNotAddUp$",
		File: "kvnode/cadence.go",
		Old:  "\twaited := c.heard && !c.now\n",
		New:  "\twaited := !c.now\n",
	},
	{
		Rule: "cadence", Name: "a tick waits for a whole interval", Pkg: "./kvnode", Test: "^TestTicksAreBoundByTheClock$",
		File: "kvnode/cadence.go",
		Old:  "\t\treturn c.due.Add(c.interval / slackPart)\n",
		New:  "\t\treturn c.due.Add(c.interval)\n",
	},
	{
		Rule: "cadence", Name: "a tick whose timer runs does not wait", Pkg: "./kvnode", Test: "^TestATickWaitsThoughItsTimerRuns$",
		File: "kvnode/loop.go",
		Old:  "time.Until(l.cadence.wake()); wait > 0 {\n",
		New:  "time.Until(l.cadence.wake()); false {\n",
	},
	{
		Rule: "cadence", Name: "after a late tick the next is as late", Pkg: "./kvnode", Test: "^TestALateLoopTicksAsOften$",
		File: "kvnode/loop.go",
		Old:  "\tl.ticker.Reset(l.cadence.wake().Sub(now))\n",
		New:  "\tl.ticker.Reset(l.cadence.interval)\n",
	},
	{
		Rule: "cadence", Name: "a tick that waits is forgotten", Pkg: "./kvnode", Test: "^TestATickWaitsThoughItsTimerRuns$",
		File: "kvnode/loop.go",
		Old:  "\t\tl.ticker.Reset(wait)\n",
		New:  "",
	},
}

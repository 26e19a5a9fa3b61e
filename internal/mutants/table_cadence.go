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
		Old:  "\t\tl.cadence.beat(now)\n",
		New:  "",
	},
	{
		Rule: "cadence", Name: "no tick goes with a heartbeat", Pkg: "./kvnode", Test: "^TestFollowersTickWithHeartbeats$",
		File: "kvnode/loop.go",
		Old:  "\t\tif l.cadence.now {\n",
		New:  "\t\tif false {\n",
	},
}

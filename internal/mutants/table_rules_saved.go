package main

const (
	corePkg = "./leaderlease/core"
	// savedFile keeps what storage holds about promises.
	savedFile = "leaderlease/core/guard.go"
)

// savedRules take apart that a restart holds for what was promised (V6), where that is
// more or less than what is asked for now.
var savedRules = []Mutant{
	{
		Rule: "V6", Name: "a longer promise is made before it is saved", Pkg: corePkg, Test: "^TestALongerPromiseWaitsForTheDisk$",
		File: savedFile,
		Old:  "\treturn d <= s.limit\n", New: "\treturn d <= s.longest\n",
	},
	{
		Rule: "V6", Name: "longer promises are made while a shorter one is saved", Pkg: corePkg, Test: "^TestWhatIsSavedFallsWithTheEndOfTheHold$",
		File: savedFile,
		Old:  "\ts.limit = min(s.limit, s.longest) // before", New: "\t// before",
	},
	{
		Rule: "V6", Name: "what is saved falls below the promises of this process", Trace: true, Pkg: corePkg, Test: "^TestWhatIsSavedFallsWithTheEndOfTheHold$",
		File: savedFile,
		Old:  "\ts.longest = max(s.longest, d)\n", New: "\tif d > s.limit {\n\t\ts.longest = max(s.longest, d)\n\t}\n",
	},
	{
		Rule: "V6", Name: "what is saved falls before promises end, in a group of several durations", Pkg: simPkg, Test: "^TestMixedDurations$",
		File: savedFile,
		Old:  "(falls && g.Held(now))", New: "(falls && false)",
	},
	{
		Rule: "V6", Name: "what is saved falls in the restart hold", Trace: true, Pkg: corePkg, Test: "^TestWhatIsSavedFallsWithTheEndOfTheHold$",
		File: savedFile,
		Old:  "(falls && g.Held(now))", New: "(falls && false)",
	},
	{
		Rule: "V6", Name: "what is saved never falls", Pkg: rulesPkg, Test: "^TestV6TheSavedPromiseFollowsThePromises$",
		File: savedFile,
		Old:  "(falls && g.Held(now))", New: "falls",
	},
	{
		Rule: "V6", Name: "a memory from before a save is trusted", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: savedFile,
		Old:  "min(s.limit, s.longest), max", New: "s.limit, max",
	},
	{
		Rule: "V6", Name: "a memory from before promises tells how long they are", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: savedFile,
		Old:  ", max(s.longest, most)", New: ", s.longest",
	},
	{
		Rule: "V6", Name: "after a disruption what is saved does not cover earlier processes", Pkg: corePkg, Test: "^TestADisruptedGuardLowersNothingThatMayBeOwed$",
		File: guardFile,
		Old:  "g.saved.clockStepped(most)", New: "g.saved.clockStepped(g.maxPromise)",
	},
	{
		Rule: "V6", Name: "after a disruption the hold is what was saved at the start", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: guardFile,
		Old:  "g.hold = now.Add(most)", New: "g.hold = now.Add(g.holdFor)",
	},
	{
		Rule: "V6", Name: "a save that failed counts", Pkg: libPkg, Test: "^TestASaveThatFailsIsSaidOnce$",
		File: "leaderlease/promises.go",
		Old:  "\tif err == nil {", New: "\tif true {",
	},
	{
		Rule: "V6", Name: "two saves at a time", Pkg: libPkg, Test: "^TestALongerPromiseIsSavedByTheWay$",
		File: "leaderlease/promises.go",
		Old:  "if s.underWay || l.mu.closed {", New: "if l.mu.closed {",
	},
	{
		Rule: "V6", Name: "a save outlives Close", Pkg: libPkg, Test: "^TestCloseWaitsForASave$",
		File: "leaderlease/lease.go",
		Old:  "\tl.saves.Wait()\n", New: "",
	},
	{
		Rule: "V6", Name: "a save begins after Close", Pkg: libPkg, Test: "^TestCloseWaitsForASave$",
		File: "leaderlease/promises.go",
		Old:  "if s.underWay || l.mu.closed {", New: "if s.underWay {",
	},
	{
		Rule: "V6", Name: "processes that saved nothing have promised nothing long", Pkg: libPkg, Test: "^TestTheHoldIsWhatWasSaved$",
		File: "leaderlease/start.go",
		Old:  "if loaded > 0 || !s.restarted {", New: "if true {",
	},
}

package main

const (
	corePkg = "./leaderlease/core"
	// savedFile keeps what storage holds about promises.
	savedFile = "leaderlease/core/saved.go"
)

// savedRules take apart that a restart holds for what was promised (V6), where that is
// more or less than what is asked for now.
var savedRules = []Mutant{
	{
		Rule: "V6", Name: "a longer promise is made before it is saved", Pkg: corePkg, Test: "^TestALongerPromiseWaitsForTheDisk$",
		File: savedFile,
		Old:  "d = s.wanted\n", New: "d, s.limit = s.wanted, s.wanted\n",
	},
	{
		Rule: "V6", Name: "longer promises are made while a shorter one is saved", Pkg: corePkg, Test: "^TestWhatIsSavedFalls$",
		File: savedFile,
		Old:  "s.limit = d // before", New: "// before",
	},
	{
		Rule: "V6", Name: "what is saved falls though longer promises are made", Pkg: corePkg, Test: "^TestWhatIsSavedFalls$",
		File: savedFile,
		Old:  "\t\ts.quiet = now\n", New: "\t\ts.quiet += 0\n",
	},
	{
		Rule: "V6", Name: "what is saved falls in the midst of longer promises", Pkg: simPkg, Test: "^TestMixedDurations$",
		File: savedFile,
		Old:  "\t\ts.quiet = now\n", New: "\t\ts.quiet += 0\n",
	},
	{
		Rule: "V6", Name: "what is saved falls at once after a start", Pkg: corePkg, Test: "^TestWhatIsSavedFalls$",
		File: savedFile,
		Old:  "held: d, quiet: now}", New: "held: d}",
	},
	{
		Rule: "V6", Name: "what is saved falls though the clock was disrupted", Pkg: corePkg, Test: "^TestWhatIsSavedFalls$",
		File: savedFile,
		Old:  "s.limit, s.quiet = min(s.limit, s.floor), now", New: "s.limit = min(s.limit, s.floor)",
	},
	{
		Rule: "V6", Name: "a memory from before a save is trusted", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: savedFile,
		Old:  "min(s.limit, s.floor), now", New: "s.limit, now",
	},
	{
		Rule: "V6", Name: "after a disruption the hold is what was saved", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: guardFile,
		Old:  "g.hold = now.Add(max(g.holdFor, g.maxPromise))", New: "g.hold = now.Add(max(g.holdFor, g.saved.held))",
	},
	{
		Rule: "V6", Name: "a save that failed counts", Pkg: libPkg, Test: "^TestASaveThatFailsIsSaidOnce$",
		File: "leaderlease/saving.go",
		Old:  "\tif err == nil {", New: "\tif true {",
	},
	{
		Rule: "V6", Name: "two saves at a time", Pkg: libPkg, Test: "^TestALongerPromiseIsSavedByTheWay$",
		File: "leaderlease/saving.go",
		Old:  "if s.underWay || l.mu.closed {", New: "if l.mu.closed {",
	},
	{
		Rule: "V6", Name: "a save outlives Close", Pkg: libPkg, Test: "^TestCloseWaitsForASave$",
		File: "leaderlease/lease.go",
		Old:  "\tl.saves.Wait()\n", New: "",
	},
	{
		Rule: "V6", Name: "a save begins after Close", Pkg: libPkg, Test: "^TestCloseWaitsForASave$",
		File: "leaderlease/saving.go",
		Old:  "if s.underWay || l.mu.closed {", New: "if s.underWay {",
	},
	{
		Rule: "V6", Name: "processes that saved nothing have promised nothing long", Pkg: libPkg, Test: "^TestTheHoldIsWhatWasSaved$",
		File: "leaderlease/start.go",
		Old:  "if loaded > 0 || !s.restarted {", New: "if true {",
	},
}

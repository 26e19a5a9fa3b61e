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
		Old:  "s.held = max(s.held, d)\n", New: "s.held, s.limit = max(s.held, d), d\n",
	},
	{
		Rule: "V6", Name: "longer promises are made while a shorter one is saved", Pkg: corePkg, Test: "^TestWhatIsSavedFalls$",
		File: savedFile,
		Old:  "s.limit = min(s.limit, d) // before", New: "// before",
	},
	{
		Rule: "V6", Name: "longer promises are made while one that somebody asks for is saved", Pkg: corePkg, Test: "^TestNoLongerPromiseIsMadeWhileAShorterOneIsSaved$",
		File: savedFile,
		Old:  "s.limit = min(s.limit, d) // before", New: "if s.wanted == 0 {\n\t\ts.limit = d\n\t}\n\t// before",
	},
	{
		Rule: "V6", Name: "what is saved falls though longer promises are made", Trace: true, Pkg: corePkg, Test: "^TestWhatIsSavedFalls$",
		File: savedFile,
		Old:  "\t\ts.quiet = now\n", New: "\t\ts.quiet += 0\n",
	},
	{
		Rule: "V6", Name: "what is saved falls in the midst of longer promises", Pkg: simPkg, Test: "^TestMixedDurations$",
		File: savedFile,
		Old:  "\t\ts.quiet = now\n", New: "\t\ts.quiet += 0\n",
	},
	{
		Rule: "V6", Name: "what is saved falls at once after a start", Trace: true, Pkg: corePkg, Test: "^TestWhatIsSavedFalls$",
		File: savedFile,
		Old:  "held: d, quiet: now}", New: "held: d}",
	},
	{
		Rule: "V6", Name: "what is saved falls though the clock was disrupted", Pkg: corePkg, Test: "^TestWhatIsSavedFalls$",
		File: savedFile,
		Old:  "max(s.held, longest), now", New: "max(s.held, longest), s.quiet",
	},
	{
		Rule: "V6", Name: "a memory from before a save is trusted", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: savedFile,
		Old:  "min(s.limit, s.floor), max", New: "s.limit, max",
	},
	{
		Rule: "V6", Name: "a memory from before a save tells what is saved", Pkg: corePkg, Test: "^TestADisruptedGuardLowersNothingThatMayBeOwed$",
		File: savedFile,
		Old:  "max(s.held, longest), now", New: "s.held, now",
	},
	{
		Rule: "V6", Name: "a save counts that a disruption came into the midst of", Pkg: corePkg, Test: "^TestADisruptionInTheMidstOfASaveVoidsIt$",
		File: savedFile,
		Old:  "\tif !g.saved.void {\n", New: "\tif true {\n",
	},
	{
		Rule: "V6", Name: "a disruption voids each save that comes after it", Pkg: corePkg, Test: "^TestADisruptionInTheMidstOfASaveVoidsIt$",
		File: savedFile,
		Old:  "s.wanted, s.quiet, s.void = 0, now, false", New: "s.wanted, s.quiet = 0, now",
	},
	{
		Rule: "V6", Name: "who asks for less lowers what is saved", Pkg: corePkg, Test: "^TestAShorterProbeLowersNothingThatMayBeOwed$",
		File: savedFile,
		Old:  "\t\t\td = max(d, s.held)\n", New: "",
	},
	{
		Rule: "V6", Name: "after a disruption the hold is what was saved at the start", Pkg: corePkg, Test: "^TestADisruptedGuardTrustsNoSave$",
		File: guardFile,
		Old:  "g.hold = now.Add(max(g.holdFor, g.maxPromise))", New: "g.hold = now.Add(max(g.holdFor, g.saved.floor))",
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

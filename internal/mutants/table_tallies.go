package main

const shareFile = "leaderlease/leasetest/sim/share_test.go"

// tallies are bugs in how the simulator deals seeds out to processes and adds up
// what they have found: each would publish hours that nobody simulated, or hide
// what they found.
var tallies = []Mutant{
	{
		Rule: "simulator", Name: "two processes simulate the same seeds", Pkg: simPkg, Test: "^TestEachSeedIsDealtOnce$",
		File: shareFile,
		Old:  "d.mu.next += uint64(s.Seeds)", New: "d.mu.next += uint64(s.Seeds+1) / 2",
	},
	{
		Rule: "simulator", Name: "shares of another run count", Pkg: simPkg, Test: "^TestEachSeedIsDealtOnce$",
		File: shareFile,
		Old:  "	var all sync.WaitGroup\n", New: "	for _, found := range d.kept {\n		d.mu.sum.add(found)\n	}\n	var all sync.WaitGroup\n",
	},
	{
		Rule: "simulator", Name: "what is kept is not counted", Pkg: simPkg, Test: "^TestHoursGoOnFromWhatIsKept$",
		File: shareFile,
		Old:  "		d.mu.sum.add(found)\n	}\n}", New: "	}\n}",
	},
	{
		Rule: "simulator", Name: "a tally is written behind one that was cut off", Pkg: simPkg, Test: "^TestAStoppedRunGoesOn$",
		File: shareFile,
		Old:  "fmt.Fprintln(f)", New: "fmt.Fprint(f)",
	},
	{
		Rule: "simulator", Name: "tallies of a control count as those of the product", Pkg: simPkg, Test: "^TestAStoppedRunGoesOn$",
		File: shareFile,
		Old:  "append(program, settings...)", New: "program",
	},
	{
		Rule: "simulator", Name: "a count is lost on the way between processes", Pkg: simPkg, Test: "^TestTalliesArriveWhole$",
		File: "leaderlease/leasetest/sim/result.go",
		Old:  "	HeldBack int\n", New: "	HeldBack int `json:\"-\"`\n",
	},
	{
		Rule: "simulator", Name: "a process that died is left out", Pkg: simPkg, Test: "^TestProcessesThatFailEndTheRun$",
		File: shareFile,
		Old:  "d.mu.errs = append(d.mu.errs, err)", New: "_ = err",
	},
	{
		Rule: "simulator", Name: "violations of a process are lost", Pkg: simPkg, Test: "^TestProcessesThatFailEndTheRun$",
		File: shareFile,
		Old:  "	s.Violations = append(s.Violations, o.Violations...)\n", New: "",
	},
	{
		Rule: "simulator", Name: "violations of a process do not fail the run", Pkg: simPkg, Test: "^TestViolationsOfProcessesFailTheRun$",
		File: shareFile,
		Old:  "		t.Error(violation)", New: "		t.Log(violation)",
	},
	{
		Rule: "simulator", Name: "the death of a process does not fail the run", Pkg: simPkg, Test: "^TestViolationsOfProcessesFailTheRun$",
		File: shareFile,
		Old:  "		t.Error(err)", New: "		t.Log(err)",
	},
}

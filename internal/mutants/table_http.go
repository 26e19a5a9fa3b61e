package main

// web are bugs of what a web page, a slow client or a greedy one is allowed, and
// of what people are shown.
var web = []Mutant{
	{
		Rule: "status", Name: "the term of a restart without an election is 0", Pkg: nodePkg, Test: "^TestTheTermOutlivesARestart$",
		File: "kvnode/start.go",
		Old:  "\tn.term.Store(hard.GetTerm())\n",
		New:  "\t_ = hard\n",
	},
}

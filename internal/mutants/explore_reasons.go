package main

// unfound says why no search finds anything with a bug planted, by the bug's name. Each
// is caught by a directed test, or by the simulator.
var unfound = map[string]string{
	"after a disruption what is saved does not cover earlier processes": "in what is searched MaxPromise is never shorter than that of an earlier process",
}

// silent are bugs that no schedule can show: not as a view that passes when it must not,
// nor as a lease that is not had or a read that is not answered, nor as a rule that is
// broken by what any node does. Each says why. They are not searched; a directed test
// plays the caller, the voter or the raft that there is not.
var silent = map[string]string{
	"a shorter probe shortens the promise":                  "a leader asks for one duration in a term, and a promise to an earlier leader binds nobody's lease once a later one is elected",
	"the leader believes more than it asked for":            "a voter says what it was asked for, which is what this leader asks for in its term",
	"the leader believes more than was promised":            "a voter promises what it was asked for, or nothing",
	"an empty configuration commits everything":             "raft has no such configuration where anybody leads",
	"requests for votes wait for an older term":             "raft hands a request out with the write of its term, or after it, never with an older one",
	"a resignation releases for ever":                       "who has resigned sends no probe in that term any more, and a term is led once (V9)",
	"a missed change is the cause of each refusal":          "it is the text of an error",
	"a hold that has ended says that waiting does not help": "it is a hint in an error, which nothing here goes by",
}

package main

// unfound gives the reason why no search finds a bug, by the bug's name. A directed test
// or the simulator catches each of them.
var unfound = map[string]string{
	"after a disruption what is saved does not cover earlier processes": "in no search is MaxPromise shorter than that of an earlier process",
	"a change is told for one that is still being applied":              "a second change waits for the first; the script found/late-follower.txt shows it",
}

// silent gives the reason why no schedule shows a bug: no stale view passes, no lease or
// read is missing, and no node breaks a rule. These bugs are not searched for. Their
// directed tests act as a caller, voter or raft that does not exist in a real group.
var silent = map[string]string{
	"a shorter probe shortens the promise":                  "a leader asks for one duration in a term, and when a later leader is elected, a promise to an earlier one protects no lease",
	"the leader believes more than it asked for":            "a voter grants the duration that the probe asked for, which is the leader's own in its term",
	"the leader believes more than was promised":            "a voter promises the duration that the probe asked for, or nothing",
	"an empty configuration commits everything":             "raft has no such configuration while a node leads",
	"requests for votes wait for an older term":             "raft hands out a request with the write of its term or after it, never with an older term",
	"a resignation releases for ever":                       "a leader that has resigned sends no more probes in that term, and a term is led once (V9)",
	"a missed change is the cause of each refusal":          "it changes the text of an error",
	"a hold that has ended says that waiting does not help": "it changes a hint in an error, which no code here uses",
}

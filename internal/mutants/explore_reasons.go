package main

// unfound says why no search finds anything with a bug planted, by the bug's name. Each
// is caught by a directed test, or by the simulator.
var unfound = map[string]string{
	"a shorter probe shortens the promise":                     "one leader asks for one duration, and what was promised to an earlier one has ended or was released when the next is elected",
	"the probe carries the reading of the tick before":         "it only shortens the lease",
	"a late grant takes the place of a newer one":              "it only shortens the lease",
	"the term of a grant is not looked at":                     "a late grant of an earlier term is left out; it counts for whoever has restarted meanwhile and leads again, by a clock that began anew",
	"a later term of the same leader is taken for the earlier": "nothing is granted then, which costs the lease only",
	"a promise takes the place of a longer hold":               "holds of the model are as long as promises",
	"the leader believes more than it asked for":               "no voter of the model says so",
	"the leader believes more than was promised":               "no voter of the model promises less than it was asked for",
	"only the outgoing half of a joint configuration":          "who can be elected by the incoming half alone has a change applied of which the leader knows that it is committed (L5)",
	"an empty configuration commits everything":                "raft has no such configuration",
	"probes go on during a transfer":                           "what they promise is not covered; they only keep transfers from succeeding",

	"requests for votes wait for an older term": "raft makes no such Ready",

	"ticks are not withheld": "V4 and Blocks keep the node's own vote from counting",

	"Ready does not hold back": "leasetest asks Blocks, since nothing may block in virtual time",

	"a promise that was read counts as durable": "leasetest's disk has nothing in memory only",

	"a promise file that was read counts as durable":                     "there are no files in leasetest",
	"a promise file never shrinks":                                       "there are no files in leasetest",
	"a promise file is written in place":                                 "there are no files in leasetest",
	"a promise file's new name is not made durable":                      "there are no files in leasetest",
	"a promise file is not synced":                                       "there are no files in leasetest",
	"a promise file's directory is synced on Windows alone":              "there are no files in leasetest",
	"a truncated promise counts":                                         "there are no files in leasetest",
	"the lease is turned off without waiting, for want of a file's name": "there are no files in leasetest",
	"the lease is turned off without waiting":                            "there are no files in leasetest",

	"a late change below a snapshot contradicts ConfIndex": "leasetest's state machine does not outlive a process here, so ConfIndex is 0",

	"a missed change is the cause of each refusal":          "what an error says is not judged",
	"a hold that has ended says that waiting does not help": "what an error says is not judged",

	"raft's early answer is served": "leasetest takes each Ready at once, before the first commit of the reign",
	"raft's early answer is sent":   "leasetest takes each Ready at once, before the first commit of the reign",

	"commit index loaded first":                         "readers do not overlap with the raft loop here",
	"commit index loaded first by a read that may wait": "readers do not overlap with the raft loop here",
	"view stored outside the lock":                      "readers do not overlap with the raft loop here",

	"an answer from a lease passes for a round": "every leader makes the rounds it is asked for",

	"a pre-vote that raft cannot turn down is let in": "no log begins behind another's",

	"Ready goes by the lease clock alone":                        "Go's clock stands still here, and Ready never blocks",
	"Go's clock ends a hold while the lease clock moves":         "Go's clock stands still here, and Ready never blocks",
	"Go's clock ends a hold in which a dead clock was disrupted": "Go's clock stands still here, and Ready never blocks",
	"a grant is not held if the clock stood still before it":     "Go's clock stands still here, and Ready never blocks",
	"a node is held back for half of the longest promise":        "Go's clock stands still here, and Ready never blocks",

	"Stop waits for what is held back": "nothing is wrapped here",
}

package main

// unfound says why no search finds anything with a bug planted, by the bug's name. Each
// is caught by a directed test, or by the simulator.
var unfound = map[string]string{
	"a shorter probe shortens the promise":       "one leader asks for one duration, and what was promised to an earlier one has ended or was released when the next is elected",
	"the leader believes more than it asked for": "no voter of the model says so",
	"the leader believes more than was promised": "no voter of the model promises less than it was asked for",
	"an empty configuration commits everything":  "raft has no such configuration",

	"requests for votes wait for an older term": "raft makes no such Ready",

	"Ready does not hold back": "leasetest asks Blocks, since nothing may block in virtual time",

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

	"view stored outside the lock": "readers do not overlap with the raft loop here",

	"Ready goes by the lease clock alone":                        "Go's clock stands still here, and Ready never blocks",
	"Go's clock ends a hold while the lease clock moves":         "Go's clock stands still here, and Ready never blocks",
	"Go's clock ends a hold in which a dead clock was disrupted": "Go's clock stands still here, and Ready never blocks",
	"a grant is not held if the clock stood still before it":     "Go's clock stands still here, and Ready never blocks",
	"a node is held back for half of the longest promise":        "Go's clock stands still here, and Ready never blocks",

	"Stop waits for what is held back": "nothing is wrapped here",
}

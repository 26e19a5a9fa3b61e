package main

// unfound says why the explorer's first level finds nothing with a bug planted, by the
// bug's name. Each has a directed test.
var unfound = map[string]string{
	"a shorter probe shortens the promise":                     "no: one leader asks for one duration, and what was promised to an earlier one has ended or was released when the next is elected",
	"the probe carries the reading of the tick before":         "no: it only shortens the lease",
	"a late grant takes the place of a newer one":              "no: it only shortens the lease",
	"the term of a grant is not looked at":                     "no: a late grant of an earlier term is left out; it counts for whoever has restarted meanwhile and leads again, by a clock that began anew",
	"probes of the future count":                               "no: no process is asked to count another's sends (V9), and its own grow also if its clock goes back",
	"the leader believes more than it asked for":               "no: no voter of the model says so",
	"the leader believes more than was promised":               "no: no voter of the model promises less than it was asked for",
	"only the outgoing half of a joint configuration":          "no: who can be elected by the incoming half alone has a change applied of which the leader knows that it is committed (L5)",
	"an empty configuration commits everything":                "no: raft has no such configuration",
	"a leader that is no voter keeps its lease":                "no: raft steps down on removal, at once",
	"demoted leader counts itself":                             "no: raft steps down on removal, at once",
	"a change that is being applied does not refuse":           "level 2: here raft and the lease switch at once",
	"changes that are in flight behind Advance do not refuse":  "level 2: here raft and the lease switch at once",
	"probes go on during a transfer":                           "no: what they promise is not covered; they only keep transfers from succeeding",
	"a reader does not notice a clock that went back":          "level 2: here the node knows at once",
	"send instants reach Forever":                              "no: far beyond the instants of the model",
	"a clock may go back as often as it likes":                 "no: a measure against a broken clock, which no schedule needs",
	"a later term of the same leader is taken for the earlier": "no: nothing is granted then, which costs the lease only",
	"a promise takes the place of a longer hold":               "no: holds of the model are as long as promises",
	"the rate watch sees nothing":                              "no: the watch is left out; its clocks keep within the bound",
	"grants of a voter with a fast clock count":                "no: the watch is left out; its clocks keep within the bound",
}

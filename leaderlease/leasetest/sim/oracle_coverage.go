package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leaderlease/go/leaderlease"
)

// rule names a decision of docs/design.md and how often it was taken.
type rule struct {
	name string
	hits func(r *Result) uint64
}

// rules lists what a long run must have exercised. A rule that never decided
// anything was not tested.
var rules = []rule{
	{"V1 promises made", func(r *Result) uint64 { return r.Stats.Promises }},
	{"V1 probes refused", func(r *Result) uint64 { return r.Stats.RefusedProbes }},
	{"V2 grants given", func(r *Result) uint64 { return r.Stats.Grants }},
	{"V3 votes kept out", func(r *Result) uint64 { return r.Stats.Withheld.VoteIn }},
	{"V3 pre-votes kept out", func(r *Result) uint64 { return r.Stats.Withheld.PreVoteIn }},
	{"V3 late transfers kept out", func(r *Result) uint64 { return r.Stats.Withheld.TimeoutNowIn }},
	{"V4 vote requests kept in", func(r *Result) uint64 { return r.Stats.Withheld.VoteOut }},
	{"V4 pre-vote requests kept in", func(r *Result) uint64 { return r.Stats.Withheld.PreVoteOut }},
	{"V4 granted votes kept in", func(r *Result) uint64 { return r.Stats.Withheld.VoteRespOut }},
	{"V5 ticks withheld", func(r *Result) uint64 { return r.Stats.Withheld.Tick }},
	{"V5 own election held back", func(r *Result) uint64 { return uint64(r.HeldBack) }},
	{"V6 restart holds", func(r *Result) uint64 { return r.Stats.Refused[leaderlease.StatusRestartHold] }},
	{"V6 longer and shorter promises saved", func(r *Result) uint64 { return r.Saves }},
	{"Readys torn", func(r *Result) uint64 { return uint64(r.Torn) }},
	{"commit indexes that a log proved", func(r *Result) uint64 { return uint64(r.Recovered) }},
	{"L1 probes sent", func(r *Result) uint64 { return r.Stats.Probes }},
	{"L2 renewals", func(r *Result) uint64 { return r.Stats.Renewals }},
	{"L3 reads in joint configurations", func(r *Result) uint64 { return r.JointReads }},
	{"L4 no own-term commit", refused(leaderlease.StatusNoOwnTermCommit)},
	{"L4 not a voter", refused(leaderlease.StatusNotVoter)},
	{"L5 configuration pending", refused(leaderlease.StatusConfPending)},
	{"L6 releases", func(r *Result) uint64 { return r.Stats.Transfers }},
	{"L6 transferring", refused(leaderlease.StatusTransferring)},
	{"L6b resignations", func(r *Result) uint64 { return r.Resignations }},
	{"L6b successors at once", func(r *Result) uint64 { return r.Successors }},
	{"leaders suspected by silence", func(r *Result) uint64 { return r.Alarms }},
	{"false alarms", func(r *Result) uint64 { return r.FalseAlarms }},
	{"L7 leases lost by step-down", func(r *Result) uint64 { return r.Stats.Losses[leaderlease.StatusNotLeader] }},
	{"margin", refused(leaderlease.StatusMargin)},
	{"expired", refused(leaderlease.StatusExpired)},
	{"clock faults", func(r *Result) uint64 { return r.Stats.ClockFaults }},
	{"clock disruptions", func(r *Result) uint64 { return r.Stats.Disruptions }},
	{"disk stalled", refused(leaderlease.StatusDiskStalled)},
	{"reads by lease", path(leaderlease.PathLease)},
	{"reads joined", path(leaderlease.PathJoined)},
	{"reads by read index", path(leaderlease.PathReadIndex)},
	{"reads forwarded", path(leaderlease.PathForwarded)},
	{"forwarded reads answered", func(r *Result) uint64 { return r.Stats.Answered }},
}

func refused(s leaderlease.Status) func(*Result) uint64 {
	return func(r *Result) uint64 { return r.Stats.Refused[s] }
}

func path(p leaderlease.Path) func(*Result) uint64 {
	return func(r *Result) uint64 { return r.Reads[p] }
}

// Uncovered returns the rules that have decided nothing.
func (r *Result) Uncovered() (names []string) {
	for _, rule := range rules {
		if rule.hits(r) == 0 {
			names = append(names, rule.name)
		}
	}
	for _, k := range slices.Concat(faultKinds, tornFaults) {
		if r.Faults[k.name] == 0 {
			names = append(names, "fault "+k.name)
		}
	}
	return names
}

// Coverage describes how often each rule has decided something.
func (r *Result) Coverage() string {
	var b strings.Builder
	for _, rule := range rules {
		fmt.Fprintf(&b, "%-34s %d\n", rule.name, rule.hits(r))
	}
	for _, k := range slices.Concat(faultKinds, tornFaults) {
		fmt.Fprintf(&b, "fault %-28s %d\n", k.name, r.Faults[k.name])
	}
	return b.String()
}

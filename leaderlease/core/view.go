package core

import (
	"time"
)

// View is an immutable copy of the lease for readers. The zero View refuses.
type View struct {
	// Term is the reign the lease belongs to; 0 when the node does not lead.
	Term uint64
	// From is the clock reading at which the view was made. A reader whose
	// clock shows less has seen its clock go backwards.
	From Instant
	// End is when the lease ends: another leader may exist from then on. It is
	// Forever for a sole voter, and zero while no quorum has answered.
	End Instant
	// Usable is End less MaxClockSkew: reads are served before it only.
	Usable Instant
	// Status is Valid if only time decides, else the reason to refuse.
	Status Status
}

// Check reports whether a read that arrived before now was read may be served.
// The read takes effect at now; a pause after the check is harmless. now must
// not be reused for a request that arrives later.
func (v *View) Check(now Instant) Status {
	if v.Status == Valid && v.From <= now && now < v.Usable {
		return Valid
	}
	return v.refuse(now)
}

// refuse names the reason. It is apart from Check so that Check is inlined.
func (v *View) refuse(now Instant) Status {
	switch {
	case v.Status != Valid:
		return v.Status
	case !now.Valid() || now.Before(v.From):
		return ClockFault
	case !now.Before(v.End):
		return Expired
	default:
		return Margin
	}
}

// Remaining returns for how long reads may still be served at now, at most
// limit (a sole voter's lease has no end of its own), and 0 if they may not.
func (v *View) Remaining(now Instant, limit time.Duration) time.Duration {
	if v.Check(now) != Valid {
		return 0
	}
	return min(v.Usable.Sub(now), limit)
}

// Status says whether a lease read may be served, and if not, why. The zero
// value refuses. Refusals are ordered from the strongest to the weakest: a
// lease that is refused for two reasons reports the smaller one.
type Status uint8

const (
	// None is the zero value: nothing is known, so nothing is served.
	None Status = iota
	// Closed means that the lease was closed and will never serve again.
	Closed
	// Disabled means that leases are off, by configuration or because the
	// embedding broke a rule that the lease depends on.
	Disabled
	// RestartHold means that the node has restarted a short while ago, or that its
	// clock could not be relied on, and may neither vote nor campaign yet (V6).
	RestartHold
	// NotLeader means that another node leads, or none.
	NotLeader
	// NotVoter means that the leader does not vote in its own configuration.
	NotVoter
	// NoOwnTermCommit means that the leader has not committed an entry of its
	// own term, so its commit index may be behind (Raft thesis, section 6.4).
	NoOwnTermCommit
	// ConfPending means that a configuration change is committed whose result
	// the lease has not been told yet (L5).
	ConfPending
	// Transferring means that leadership is being transferred (L6).
	Transferring
	// ClockFault means that the clock failed, went backwards or was disrupted and
	// no quorum has answered since, or that too many clocks were found to run
	// outside the configured bound.
	ClockFault
	// DiskStalled means that the embedder's disk does not answer.
	DiskStalled
	// Expired means that the end has passed, or that no quorum has answered yet.
	// Another leader may exist.
	Expired
	// Margin means that less than MaxClockSkew is left: no reads, but renewal is
	// still possible.
	Margin
	// Valid means that a read may be served now.
	Valid

	// NumStatus is the number of values, for arrays indexed by Status.
	NumStatus = int(Valid) + 1
)

var statusNames = [NumStatus]string{
	None:            "none",
	Closed:          "closed",
	Disabled:        "disabled",
	RestartHold:     "restart_hold",
	NotLeader:       "not_leader",
	NotVoter:        "not_voter",
	NoOwnTermCommit: "no_own_term_commit",
	ConfPending:     "conf_pending",
	Transferring:    "transferring",
	ClockFault:      "clock",
	DiskStalled:     "disk",
	Expired:         "expired",
	Margin:          "margin",
	Valid:           "valid",
}

// String returns the name used in metrics, trailers and error messages.
func (s Status) String() string {
	if int(s) < NumStatus {
		return statusNames[s]
	}
	return "unknown"
}

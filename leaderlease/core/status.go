package core

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

package core

import "time"

// View is an immutable copy of the lease for readers. The zero View refuses.
type View struct {
	// Term is the term of the lease; 0 when the node does not lead.
	Term uint64
	// From is the clock reading at which the view was made. If the clock is read after the view
	// was loaded and is below From, it went backwards.
	From Instant
	// End is the end of the promises of a quorum: the send instant plus Duration. It is Forever for a sole
	// voter, and zero while no quorum has answered.
	End Instant
	// Usable is the end of lease reads: End − MaxClockSkew. At that time and later another leader may exist, if the
	// clocks drift apart as far as MaxClockSkew allows.
	Usable Instant
	// Status is Valid if only time decides, else the reason to refuse.
	Status Status
}

// Check reports whether a request may be served that arrived before the reading now was taken. The read
// takes effect at now; a pause after the check is harmless. now must not be reused for a request that arrives
// later.
func (v *View) Check(now Instant) Status {
	if v.Status == Valid && v.From <= now && now < v.Usable {
		return Valid
	}
	return v.refuse(now)
}

// refuse returns the reason. It is apart from Check so that Check is inlined.
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

// Remaining returns for how long reads may still be served at now, at most limit, since a sole
// voter's lease has no end. It returns 0 if reads may not be served.
func (v *View) Remaining(now Instant, limit time.Duration) time.Duration {
	if v.Check(now) != Valid {
		return 0
	}
	return min(v.Usable.Sub(now), limit)
}

// Status says whether a lease read may be served, and if not, why. The zero value refuses. Refusals
// are ordered from the strongest to the weakest: of two reasons in View.Status the smaller one counts.
type Status uint8

// The constants StatusNone to StatusValid of package leaderlease explain the values.
const (
	None Status = iota
	Closed
	Disabled
	RestartHold // (V6)
	NotLeader
	NotVoter
	NoOwnTermCommit // (L4; Raft thesis, section 6.4)
	ConfPending     // (L5)
	Transferring    // (L6)
	ClockFault
	DiskStalled
	Expired
	Margin
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

// String returns the name used in metrics, kvnode's gRPC trailers and error messages.
func (s Status) String() string {
	if int(s) < NumStatus {
		return statusNames[s]
	}
	return "unknown"
}

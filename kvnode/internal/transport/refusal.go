package transport

import (
	"errors"
	"fmt"
	"slices"
)

// Reasons to refuse a member. A member that meets another one counts it as
// ReasonOther.
const (
	// ReasonCluster means that the two belong to different clusters.
	ReasonCluster = "cluster"
	// ReasonMember means that somebody else is at this address, or that the
	// member's ID is not one.
	ReasonMember = "member"
	// ReasonVersion means that the two have no protocol version in common.
	ReasonVersion = "version"
	// ReasonRemoved means that the member was removed from the cluster.
	ReasonRemoved = "removed"
	// ReasonWiped means that the member came back without its data.
	ReasonWiped = "wiped"
	// ReasonCertificate means that the certificate is not that of the member.
	ReasonCertificate = "certificate"
	// ReasonUnknown means that the member that refuses has the other one neither in its registry nor, by its
	// host, in its configuration.
	ReasonUnknown = "unknown"
	// ReasonOther is everything else.
	ReasonOther = "other"
)

var reasons = [...]string{ReasonCluster, ReasonMember, ReasonVersion, ReasonRemoved, ReasonWiped, ReasonCertificate, ReasonUnknown, ReasonOther}

// Refusal is an error with which Handler.Admit refuses a peer for a reason that
// the peer can act on.
type Refusal struct { //nolint:errname // both ends call it that; the peer's half is RefusedError
	Reason string // one of the Reason constants
	Text   string // for people
	// Term and Index say what a wiped member is known to have had: a hard state of at
	// least that term, a log that ends no earlier. 0 is a version that does not say, or
	// another directory.
	Term, Index uint64 `json:",omitempty"`
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

func refusal(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// refusalOf returns what to tell a peer that err keeps out.
func refusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok && slices.Contains(reasons[:], r.Reason) {
		return &Refusal{Reason: r.Reason, Text: err.Error(), Term: r.Term, Index: r.Index}
	}
	return &Refusal{Reason: ReasonOther, Text: err.Error()}
}

// RefusedError says that a peer does not want to hear from this member.
type RefusedError struct {
	Peer   uint64
	Reason string // one of the Reason constants
	Text   string // the peer's words
	// Term and Index are the Refusal's.
	Term, Index uint64
}

// Error names the peer, the reason and the peer's words.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("member %s refuses this one (%s): %s", ID(e.Peer), e.Reason, e.Text)
}

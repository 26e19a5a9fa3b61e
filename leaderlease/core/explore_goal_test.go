package core

// goal is something that must have been seen, or a search proves little.
type goal int

const (
	goalLease         goal = iota // a view passed its check
	goalMargin                    // a view would have passed but for the margin
	goalSecond                    // a second leader has a lease
	goalOvertaken                 // a lease has run out, and a later term is won
	goalRenewed                   // a grant has moved the end
	goalBound                     // a promise has kept a vote away
	goalHeld                      // a restart hold has
	goalReleased                  // a release has voided a promise that had not ended
	goalHandedOver                // a transfer has succeeded
	goalAborted                   // a leader has a lease again after a transfer
	goalJoint                     // a joint configuration is proposed
	goalReconfigured              // a leader has applied a configuration
	goalFreed                     // a voter votes whose promise has ended
	goalHeldGrants                // a held node makes a promise
	goalReleasedOlder             // the same for a promise to an earlier leader
	goalLateProbe                 // a probe that a release covers comes late, and gets no promise
	goalSole                      // a sole voter needs nobody
	goalRaised                    // a promise is made that is longer than the shortest saved
	goalLowered                   // what is saved falls again
	goalLong                      // a lease is held for as long as it can be
	goalLaterTerm                 // a voter makes the leader whom it knows a promise in a later term
	goalResigned                  // the leader after one that has resigned, and lives on
	goalVoided                    // an obituary has voided a promise that had not ended
	goalFormer                    // one has not: the promise is to the next process
	goalTwice                     // a node has won a term twice
	numGoals
)

var goalNames = [numGoals]string{
	"a lease is held", "a read in the margin is refused", "a second leader has a lease", "a lease has run out when a later term is won",
	"a lease is renewed", "a promise keeps a vote away", "a restart hold keeps a vote away", "a release voids a promise",
	"a transfer succeeds", "a lease is held again after a transfer",
	"a joint configuration is proposed", "a leader applies a configuration", "a voter votes when its promise has ended", "a held node makes a promise",
	"a release voids a promise to an earlier leader", "a late probe gets no promise", "a sole voter has a lease",
	"a longer promise is made than was saved", "what is saved falls",
	"a lease lasts as long as it may", "a promise to a leader that leads again", "a leader that resigns is replaced",
	"an obituary voids a promise", "an obituary of a former process voids none", "a node wins one term twice",
}

func (s *stage) reach(g goal) { s.marks |= 1 << g }

// blunder is a way not to do what doc.go asks of the caller. At this level two of them
// are harmless: raft itself does not answer the heartbeats of a deposed leader
// (termNotTold), and it switches to a configuration when the lease does
// (pendingNotTold).
type blunder int

const (
	faultless blunder = iota
	voteBeforeDurable
	guardNotHeard
	ownCampaignFree
	noHold
	halfHold
	leaseKept
	reignNotEnded
	termNotTold
	fromArrival
	echo
	votersNotTold
	pendingNotTold
	followerResigns
	resignedLeads
	livingBuried
	numBlunders
)

var blunderNames = [numBlunders]string{
	"none", "V9: MsgVote leaves before its term is durable", "V3: the guard is not heeded", "V4: a bound node's requests leave",
	"V6: no restart hold", "V6: half a restart hold", "L6: the lease is kept in a transfer", "L7: the reign is not ended",
	"V1: the guard is not told the term", "L2: measured from the arrival of the answer", "V2: an echo is a grant",
	"L5: the lease is not told its voters", "L5: the lease is not told of a pending change",
	"L6b: who does not lead resigns for its node's term", "L6b: who resigns keeps its lease",
	"V8: an obituary of a process that lives",
}

package kvnode

import (
	"errors"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/confchange"
)

// maxHold bounds how long a batch that is not committed holds up the next one,
// while the loop has something to do. It matters where the quorum is far away, or
// slow: longer adds as much to a write's latency, shorter makes small batches of
// what a busy member is late with.
const maxHold = 10 * time.Millisecond

// mayPropose makes a leader finish one batch before it proposes the next. What
// arrives meanwhile shares the fixed costs of messages, syncs and answers, and
// would have waited for the disks anyway. A write that comes alone waits for
// nobody.
func (l *raftLoop) mayPropose() bool {
	// Committed up to the end of the log: there is no batch under way. What a follower has under
	// way its leader batches, so it hands on what it has.
	if l.role != raft.StateLeader || l.commit >= l.last.Load() {
		return true
	}
	return time.Since(l.offers.since) > maxHold
}

// takeProposals puts what has come behind what waits.
//
// Two arrays take turns, so that a busy member allocates none: clients fill the one in the box,
// and own is a part of the other. Only while own is empty may the box have that one back.
func (l *raftLoop) takeProposals() {
	o := &l.offers
	if len(o.own) > 0 {
		o.own = append(o.own, l.proposals.box.Drain(nil)...)
		o.spare = nil // its array may be that of own
		return
	}
	o.spare = l.proposals.box.Drain(o.spare)
	// In line behind the followers that have forwarded something: who leads goes before nobody.
	if o.own = o.spare; len(o.own) > 0 {
		o.wait(l.ID())
	}
}

// maxOffer bounds the entries of one message to raft, which is the unit it takes
// or drops. More: it is dropped until that much more room is free (maxUncommittedBytes).
// Less: more messages, each with its own step, for what is committed together.
const maxOffer = 256 << 10

// offerOwn offers raft this member's next proposals, and returns whether it has taken
// them. Those whose clients have gone meanwhile are left out: nobody hears of them any more,
// and an entry for each would be written and sent for nothing.
func (l *raftLoop) offerOwn() bool {
	o := &l.offers
	if len(o.own) == 0 {
		return true // nobody waited any more
	}
	k := firstOffer(o.own)
	for i := range k {
		o.own[i] = o.own[i].in(l.leadership.Term())
	}
	// Marked as proposed before raft has them. Afterwards would be too late: a client that gives up
	// in between would be told that nothing was done (overdue), of a write that takes effect.
	ps := l.proposals.waiters.propose(o.own[:k])
	if len(ps) > 0 {
		err := l.tryPropose(propMessage(l.ID(), ps))
		if errors.Is(err, raft.ErrProposalDropped) {
			// They stay the first in line: who was before them is gone, and the rest moves up.
			l.proposals.waiters.park(ps)
			gone := k - len(ps)
			copy(o.own[gone:k], ps)
			o.own = o.own[gone:]
			return false
		}
		l.offers.since = time.Now() // maxHold counts from here
		if err != nil {
			// It is refused for good: raft never has it, so nobody may wait for it.
			for _, p := range ps {
				l.proposals.waiters.fail(p.id, err)
			}
		}
	}
	o.own = o.own[k:]
	return true
}

// firstOffer returns how many of ps to propose together: up to maxOffer bytes, but one however
// large it is, and configuration changes alone: each waits until all before it is applied
// (tryPropose), and would make what shares its message wait, too.
func firstOffer(ps []proposal) int {
	if confchange.Is(ps[0].entry) {
		return 1
	}
	k, bytes := 0, 0 // at least one, or the line would never move
	for _, p := range ps {
		bytes += len(p.entry.GetData())
		// A change further back ends this message, and is the next one by itself.
		if confchange.Is(p.entry) || k > 0 && bytes > maxOffer {
			break
		}
		k++
	}
	return k
}

// propMessage has no term: raft takes a proposal for the reign that it finds.
func propMessage(from uint64, ps []proposal) *raftpb.Message {
	entries := make([]*raftpb.Entry, len(ps))
	for i, p := range ps {
		entries[i] = p.entry
	}
	return &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(from), Entries: entries}
}

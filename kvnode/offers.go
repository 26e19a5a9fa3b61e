package kvnode

import (
	"errors"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
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
	if l.role != raft.StateLeader || l.commit >= l.last.Load() {
		return true
	}
	return time.Since(l.offers.since) > maxHold
}

// takeProposals puts what has come behind what waits.
func (l *raftLoop) takeProposals() {
	o := &l.offers
	if len(o.own) > 0 {
		o.own = append(o.own, l.proposals.box.take(nil)...)
		o.spare = nil // its array may be that of own
		return
	}
	o.spare = l.proposals.box.take(o.spare)
	if o.own = o.spare; len(o.own) > 0 {
		o.wait(l.ID())
	}
}

// maxOffer bounds the entries of one message to raft, which is the unit it takes
// or drops.
const maxOffer = 256 << 10

// offerOwn offers raft this member's next proposals, and returns whether it has taken
// them.
func (l *raftLoop) offerOwn() bool {
	o := &l.offers
	if len(o.own) == 0 {
		return true // nobody waited any more
	}
	k := firstOffer(o.own)
	ps := l.proposals.waiters.propose(o.own[:k])
	if len(ps) > 0 {
		err := l.tryPropose(propMessage(l.ID(), ps))
		if errors.Is(err, raft.ErrProposalDropped) {
			l.proposals.waiters.park(ps)
			gone := k - len(ps)
			copy(o.own[gone:k], ps)
			o.own = o.own[gone:]
			return false
		}
		l.offers.since = time.Now()
		if err != nil {
			for _, p := range ps {
				l.proposals.waiters.fail(p.id, err)
			}
		}
	}
	o.own = o.own[k:]
	return true
}

// firstOffer returns how many of ps to propose together: up to maxOffer bytes,
// and configuration changes alone.
func firstOffer(ps []proposal) int {
	if isConfChange(ps[0].entry) {
		return 1
	}
	k, bytes := 0, 0
	for _, p := range ps {
		bytes += len(p.entry.GetData())
		if isConfChange(p.entry) || k > 0 && bytes > maxOffer {
			break
		}
		k++
	}
	return k
}

func propMessage(from uint64, ps []proposal) *raftpb.Message {
	entries := make([]*raftpb.Entry, len(ps))
	for i, p := range ps {
		entries[i] = p.entry
	}
	return &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(from), Entries: entries}
}

func isConfChange(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal }

package kvnode

import (
	"errors"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/confchange"
)

// offers is what waits for raft to take it: this member's own proposals and, on a
// leader, those that followers have forwarded. Raft would drop them without a word to
// whoever has made them. The loop only.
type offers struct {
	own []proposal // in order of arrival
	// lanes are the messages of each follower, in order. intake bounds them.
	lanes map[uint64][]*raftpb.Message
	// turns are the members with something that waits, the next one first: raft takes
	// one message of each in turn, or one busy member would keep the others out.
	turns []uint64
	// full: raft has taken no more, and nothing has changed since.
	full  bool
	since time.Time  // when raft was offered proposals last
	spare []proposal // the array that own is taken with next
}

// forwarded takes a follower's proposal. A member that does not lead passes it on, or
// drops it if nobody does: who has made it will hear of a later term, and proposes it
// again then, or fails it (endReign).
func (l *raftLoop) forwarded(m *raftpb.Message) {
	from, size := m.GetFrom(), payload(m)
	err := confchange.CheckForwarded(m)
	switch {
	case err != nil:
		l.malformed(err, "from", l.book.nameOf(from))
	case !l.admission.IsOpen(): // a first start that nobody has admitted yet
	case l.role != raft.StateLeader:
		_ = l.raw.Step(m)
	// Raft may take it at once only if nothing waits, or it would overtake what does. A change of the
	// configuration always waits: tryPropose says for what.
	case len(l.offers.turns) > 0 || hasConfChange(m) || errors.Is(l.raw.Step(m), raft.ErrProposalDropped):
		l.offers.park(m)
		return
	default:
		// Nobody was before it, so it shares the Ready of what came with it.
	}
	l.intake.leave(from, size)
}

// park keeps m behind what its sender has sent before. It counts in the sender's share until raft
// takes it (offerOf) or this member leads no more (forget).
func (o *offers) park(m *raftpb.Message) {
	from := m.GetFrom()
	if o.lanes == nil {
		o.lanes = make(map[uint64][]*raftpb.Message)
	}
	o.lanes[from] = append(o.lanes[from], m)
	o.wait(from)
}

// wait gives a member with something that waits a turn.
func (o *offers) wait(id uint64) {
	if !slices.Contains(o.turns, id) {
		o.turns = append(o.turns, id)
	}
}

// forget drops what followers have forwarded to a member that no longer leads: of another term
// it would be void. They propose it again by themselves (proposals.reached).
func (l *raftLoop) forget() {
	o := &l.offers
	for _, lane := range o.lanes {
		for _, m := range lane {
			l.intake.leave(m.GetFrom(), payload(m))
		}
	}
	o.lanes = nil
	o.turns = slices.DeleteFunc(o.turns, func(id uint64) bool { return id != l.ID() })
}

// offer hands raft what waits until it takes no more: one message of each member in turn. This
// member's turn comes as the others' do, but is passed over while mayPropose holds its batch back.
func (l *raftLoop) offer() {
	o := &l.offers
	if l.role != raft.StateLeader && o.lanes != nil {
		l.forget()
	}
	if o.full {
		return
	}
	// passed counts turns in a row at which nothing was offered: once all were, nothing is left.
	for passed, own := 0, l.mayPropose(); passed < len(o.turns); {
		id := o.turns[0]
		held := id == l.ID() && !own
		if !held && !l.offerOf(id) {
			o.full = true // id keeps its turn
			return
		}
		o.turns = o.turns[1:]
		switch {
		case held:
			passed++
			o.turns = append(o.turns, id)
		case len(o.lanes[id]) > 0 || id == l.ID() && len(o.own) > 0:
			passed = 0
			o.turns = append(o.turns, id)
		default:
			passed = 0
		}
	}
}

// offerOf offers raft the next message of a member, and returns whether it was taken, or refused
// for good. One that was dropped keeps its place in the lane.
func (l *raftLoop) offerOf(id uint64) bool {
	if id == l.ID() {
		return l.offerOwn()
	}
	lanes := l.offers.lanes
	m := lanes[id][0]
	size := payload(m) // before raft may replace what it does not take
	if errors.Is(l.tryPropose(m), raft.ErrProposalDropped) {
		return false
	}
	l.intake.leave(id, size)
	if lanes[id] = lanes[id][1:]; len(lanes[id]) == 0 {
		delete(lanes, id)
	}
	return true
}

// tryPropose steps a proposal. After raft.ErrProposalDropped it is nowhere: nobody
// leads, or is connected, leadership is being transferred, or too much is uncommitted.
func (l *raftLoop) tryPropose(m *raftpb.Message) error {
	if l.role != raft.StateLeader {
		if m.GetEntries()[0].GetType() == raftpb.EntryConfChangeV2 {
			return ErrNotLeader // who leads raises the format by itself
		}
		// Raft would forward it and say that it is taken, and the link would lose it without a word:
		// its client would wait for RequestTimeout. Parked, it goes once the queue has room.
		if lead := l.leadership.Leader(); lead != raft.None && !l.links.Takes(lead, m) {
			return raft.ErrProposalDropped
		}
		err := l.raw.Step(m)
		l.handleReadys() // what is sent now counts when the next one is offered
		return err
	}
	if hasConfChange(m) {
		// It waits until all that is in the log is applied, and nobody overtakes it.
		// With one before it that is not applied, raft puts an empty entry in its
		// place; and raft takes one for pending that it has dropped since too much was
		// uncommitted, and so would do that with the next one (raft.go, stepLeader).
		l.handleReadys()
		if l.raw.BasicStatus().Applied < l.last.Load() {
			return raft.ErrProposalDropped
		}
	}
	return l.raw.Step(m)
}

func hasConfChange(m *raftpb.Message) bool { return slices.ContainsFunc(m.GetEntries(), confchange.Is) }

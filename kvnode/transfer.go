package kvnode

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/kvnode/transport"
)

// heirTicks is after how many ticks another heir is asked to take over, while this
// member still leads. An heir that campaigns ends that sooner: a round trip and a
// write to disk fit in. Shorter: two campaign at once. Longer: nothing is proposed
// until then.
const heirTicks = 3

// heir is a voter that leadership may be transferred to, as its leader sees it.
type heir struct {
	id      uint64
	match   uint64        // how much of the log it has
	answers bool          // it is connected, and has answered within an election timeout
	held    time.Duration // what is left of its restart hold, by its own word
	tries   int           // how often it was asked
}

// chooseHeir returns who is to be asked to take over, or for how long all that could
// be must be waited for, or nothing of both: there is nobody. A member in its restart
// hold would drop the request, and nothing can be proposed until that shows.
func chooseHeir(heirs []heir) (id uint64, wait time.Duration) {
	heirs = slices.DeleteFunc(slices.Clone(heirs), func(h heir) bool { return !h.answers })
	if len(heirs) == 0 {
		return raft.None, 0
	}
	best := slices.MinFunc(heirs, func(a, b heir) int {
		return cmp.Or(cmp.Compare(a.held, b.held), cmp.Compare(a.tries, b.tries), cmp.Compare(b.match, a.match), cmp.Compare(a.id, b.id))
	})
	if best.held > 0 {
		return raft.None, best.held
	}
	return best.id, 0
}

// MoveLeader transfers leadership to member to and returns when that has happened. It
// waits for the end of a restart hold that to is in. It fails with ErrNotLeader unless
// this member leads, and with ErrUnknownMember if to is not a voter.
func (n *Node) MoveLeader(ctx context.Context, to uint64) error {
	if n.Leader() != n.ID() {
		return ErrNotLeader
	}
	if m, ok := n.store.Members().ByID[to]; !ok || m.Learner {
		return cannotLead(to)
	}
	if to == n.ID() {
		return nil
	}
	if err := n.transfer(ctx, to); err != nil {
		return err
	}
	if now := n.Leader(); now != to {
		return fmt.Errorf("%w: %x leads, not %x", ErrLeaderChanged, now, to)
	}
	return nil
}

func cannotLead(id uint64) error { return fmt.Errorf("%w: %x cannot lead", ErrUnknownMember, id) }

// transferAway makes another member lead, if this one does and any answers.
func (n *Node) transferAway(ctx context.Context) error {
	if n.Leader() != n.ID() {
		return nil
	}
	return n.transfer(ctx, raft.None)
}

// transfer asks members to take over, one after another, until one leads, or only
// the one given. It gives up after the time for which one may be held, and an election
// timeout more. One that was asked and does not campaign has not heard of it, or may
// not: the lease of this member is released for as long as it still could.
func (n *Node) transfer(ctx context.Context, only uint64) error {
	limit := n.cfg.ElectionTimeout + n.lease.Info().MaxPromise + 2*n.cfg.TickInterval
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrTimeout)
	defer cancel()
	tries, lookedAgain := make(map[uint64]int), false
	for {
		heirs, err := n.heirs(ctx, only, tries)
		if err != nil {
			return err
		}
		id, wait := chooseHeir(heirs)
		switch {
		case id != raft.None:
			tries[id]++
			lookedAgain = false
			n.askToLead(id)
			wait = heirTicks * n.cfg.TickInterval
		case wait == 0 && only != raft.None:
			return cannotLead(only) // it was removed meanwhile
		case wait == 0 && (len(heirs) == 0 || lookedAgain):
			return nil
		case wait == 0:
			// Once in an election timeout raft forgets who answers, until they do again.
			lookedAgain, wait = true, 2*n.cfg.TickInterval
		}
		if done, err := n.awaitHeir(ctx, wait); done || err != nil {
			if err != nil {
				n.askToLead(n.ID()) // which calls it off
			}
			return err
		}
	}
}

// heirs returns those who may be asked to lead: all other voters, or only one.
func (n *Node) heirs(ctx context.Context, only uint64, tries map[uint64]int) ([]heir, error) {
	found := make(chan []heir, 1)
	n.calls.put(func() {
		var all []heir
		n.loop.raw.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
			if id != n.ID() && typ == raft.ProgressTypePeer && (only == raft.None || only == id) {
				all = append(all, heir{id: id, match: pr.Match, answers: pr.RecentActive || only == id, tries: tries[id]})
			}
		})
		found <- all
	})
	var all []heir
	select {
	case all = <-found:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-n.stopping:
		return nil, ErrStopped
	}
	peers, most := n.links.Peers(), n.lease.Info().MaxPromise
	for i := range all {
		h := &all[i]
		at := slices.IndexFunc(peers, func(p transport.PeerStatus) bool { return p.ID == h.id })
		if at < 0 {
			continue
		}
		h.answers = h.answers && (peers[at].Connected || only == h.id)
		h.held = stillHeld(peers[at].Hello.Hold, time.Since(peers[at].Since), most)
	}
	return all, nil
}

// stillHeld returns what is left of the hold that a member told of so long ago. None
// lasts longer than most: whatever else a member says, leadership must not wait for it.
func stillHeld(said, ago, most time.Duration) time.Duration {
	return max(min(max(said, 0), most)-ago, 0)
}

// askToLead makes raft transfer leadership to member to. To itself means: not at all.
// Raft ignores a request for the one that it transfers to already, so that is called off
// before, or one that has dropped the first request would never hear another.
func (n *Node) askToLead(to uint64) {
	n.calls.put(func() {
		if n.loop.role != raft.StateLeader {
			return
		}
		if n.loop.raw.BasicStatus().LeadTransferee == to {
			n.loop.raw.TransferLeader(n.ID())
		}
		n.loop.raw.TransferLeader(to)
	})
}

// awaitHeir waits until another member leads, and reports false if this one still
// does when patience has passed. From when it does not, there is an election, which
// is waited for.
func (n *Node) awaitHeir(ctx context.Context, patience time.Duration) (done bool, err error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		now := n.leader.Load()
		if now.id != n.ID() && now.id != raft.None {
			return true, nil
		}
		due := over.C
		if now.id == raft.None {
			due = nil
		}
		select {
		case <-now.changed:
		case <-due:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-n.stopping:
			return false, ErrStopped
		}
	}
}

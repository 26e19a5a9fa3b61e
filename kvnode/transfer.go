package kvnode

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
)

// A transferee that does not campaign within transfereeTime, or transfereeTicks if that is longer, is given up, and
// the leader asks another member. The time covers a round trip and writes to a slow disk. If it is too short, two
// members campaign at once. If it is long, a transferee that does not answer delays writes: raft takes no proposals
// during a transfer.
const (
	transfereeTime  = 300 * time.Millisecond
	transfereeTicks = 3
)

// transferee is a voter to which leadership may be transferred, as its leader sees it.
type transferee struct {
	id       uint64
	match    uint64        // how much of the log it has
	eligible bool          // it is connected and has answered within an election timeout, or the client has named it
	hold     time.Duration // the rest of its restart hold, according to its hello
	tries    int           // how often it was asked
}

// chooseTransferee returns the member to ask. If all candidates are in their restart hold, it returns the time
// until the first one may campaign: a member in its hold drops the request. If there is no candidate, both results
// are 0.
func chooseTransferee(all []transferee) (id uint64, wait time.Duration) {
	all = slices.DeleteFunc(slices.Clone(all), func(t transferee) bool { return !t.eligible })
	if len(all) == 0 {
		return raft.None, 0
	}
	best := slices.MinFunc(all, func(a, b transferee) int {
		return cmp.Or(cmp.Compare(a.hold, b.hold), cmp.Compare(a.tries, b.tries), cmp.Compare(b.match, a.match), cmp.Compare(a.id, b.id))
	})
	if best.hold > 0 {
		return raft.None, best.hold
	}
	return best.id, 0
}

// MoveLeader transfers leadership to member to, and returns when that has happened. If to is in its restart
// hold, it waits for the end of that. It fails with ErrNotLeader unless this member leads, and with
// ErrNotVoter if to is not a voter.
func (n *Node) MoveLeader(ctx context.Context, to uint64) error {
	return n.transfers.moveLeader(ctx, to)
}

// transfers hands leadership over: to the member that a client names or, because this member stops or its
// disk takes no writes, to any other voter. Its methods are safe for concurrent use.
type transfers struct {
	// Immutable.
	cfg        *Config
	self       uint64
	store      *store.Store
	lease      *leaderlease.Lease
	links      *transport.Transport
	leadership *leadership
	calls      *calls
	life       *lifecycle.Lifecycle
	log        *slog.Logger
	logLimit   *lifecycle.LogLimit

	steppingAside atomic.Bool
}

func (t *transfers) moveLeader(ctx context.Context, to uint64) error {
	if !t.leadership.Leads() {
		return ErrNotLeader
	}
	if m, ok := t.store.Members().ByID[to]; !ok || m.Learner {
		return cannotLead(to)
	}
	if to == t.self {
		return nil
	}
	if err := t.transfer(ctx, to); err != nil {
		return err
	}
	if now := t.leadership.Leader(); now != to {
		return fmt.Errorf("%w: %x leads, not %x", ErrLeaderChanged, now, to)
	}
	return nil
}

func cannotLead(id uint64) error { return fmt.Errorf("%w: %x cannot lead", ErrNotVoter, id) }

// transferAway makes any other member lead, if this member leads and another one answers.
func (t *transfers) transferAway(ctx context.Context) error {
	if !t.leadership.Leads() {
		return nil
	}
	return t.transfer(ctx, raft.None)
}

// transfer asks target to take over or, if target is raft.None, one member after another, until another member
// leads. It gives up after the longest restart hold plus an election timeout. Asking several members is safe:
// this member has no lease while a member that was asked before may still campaign (L6).
func (t *transfers) transfer(ctx context.Context, target uint64) error {
	limit := t.cfg.ElectionTimeout + t.cfg.maxPromise() + 2*t.cfg.TickInterval
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrTimeout)
	defer cancel()
	tries, lookedAgain := make(map[uint64]int), false
	for {
		all, err := t.candidates(ctx, target, tries)
		if err != nil {
			return err
		}
		id, wait := chooseTransferee(all)
		switch {
		case id != raft.None:
			tries[id]++
			lookedAgain = false
			t.askToLead(id)
			wait = max(transfereeTime, transfereeTicks*t.cfg.TickInterval)
		case wait == 0 && target != raft.None:
			return cannotLead(target) // it was removed meanwhile
		case wait == 0 && (len(all) == 0 || lookedAgain):
			return nil
		case wait == 0:
			// Once in an election timeout (CheckQuorum) raft resets RecentActive, until the members answer again.
			lookedAgain, wait = true, 2*t.cfg.TickInterval
		}
		if done, err := t.awaitLeader(ctx, wait); done || err != nil {
			if err != nil {
				t.askToLead(t.self) // cancels the transfer
			}
			return err
		}
	}
}

// candidates returns the voters that may be asked to lead: target or, if target is raft.None, all others.
func (t *transfers) candidates(ctx context.Context, target uint64, tries map[uint64]int) ([]transferee, error) {
	all, err := ask(ctx, t.calls, func(l *raftLoop) []transferee { return l.otherVoters(target) })
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].tries = tries[all[i].id]
	}
	return t.addConnections(all, target), nil
}

// otherVoters returns target, or all other voters if target is raft.None, as a leader's raft knows them.
func (l *raftLoop) otherVoters(target uint64) (all []transferee) {
	l.raw.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id != l.self && typ == raft.ProgressTypePeer && (target == raft.None || target == id) {
			all = append(all, transferee{id: id, match: pr.Match, eligible: pr.RecentActive || target == id})
		}
	})
	return all
}

// addConnections adds, in place, what the transport knows about the voters in all. It does not use the lease, because
// resign calls it after a panic, which may have left the lease locked.
func (t *transfers) addConnections(all []transferee, target uint64) []transferee {
	peers, most := t.links.Peers(), t.cfg.maxPromise()
	for i := range all {
		h := &all[i]
		at := slices.IndexFunc(peers, func(p transport.PeerStatus) bool { return p.ID == h.id })
		if at < 0 {
			continue
		}
		h.eligible = h.eligible && (peers[at].Connected || target == h.id)
		h.hold = restOfHold(peers[at].Hello.Hold, time.Since(peers[at].Since), most)
	}
	return all
}

// restOfHold returns what is left of a restart hold that a member reported some time ago. A transfer must not wait
// for a member that reports too long a hold, so the hold counts as most at most.
func restOfHold(reported, ago, most time.Duration) time.Duration {
	return max(min(max(reported, 0), most)-ago, 0)
}

// askToLead makes raft transfer leadership to member to; this member's own ID cancels a transfer. Raft ignores a
// request for the transferee that it has already, so askToLead cancels that transfer first. Otherwise a transferee
// that dropped the first request would never get another one.
func (t *transfers) askToLead(to uint64) {
	t.calls.Push(func(l *raftLoop) {
		if l.role != raft.StateLeader {
			return
		}
		if l.raw.BasicStatus().LeadTransferee == to {
			l.raw.TransferLeader(t.self)
		}
		l.raw.TransferLeader(to)
	})
}

// awaitLeader waits until another member leads. It returns false if this member still leads after timeout.
// Once this member does not lead there is an election, and awaitLeader waits for its end.
func (t *transfers) awaitLeader(ctx context.Context, timeout time.Duration) (done bool, err error) {
	over := time.NewTimer(timeout)
	defer over.Stop()
	for {
		now := t.leadership.current.Load()
		if now.id != t.self && now.id != raft.None {
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
		case <-t.life.Stopping():
			return false, ErrStopped
		}
	}
}

// stepAside transfers leadership if the others commit entries without this member's disk. Raft hands out for
// applying only entries that are durable here, so this member could answer no linearizable read. The loop calls
// stepAside at each tick while the disk takes no writes.
func (t *transfers) stepAside() {
	if !t.leadership.Leads() || t.lease.Info().Commit <= t.store.Applied() || t.steppingAside.Swap(true) {
		return
	}
	t.life.Go(func() {
		defer t.steppingAside.Store(false)
		if err := t.transferAway(context.Background()); err != nil && t.logLimit.Allow(t.self) {
			t.log.Warn("the disk does not take writes, and leadership was not transferred", "error", err)
		}
		// A transfer holds up proposals, and restarts the election timeout after which CheckQuorum checks the
		// members. So the next one begins only after more than an election timeout.
		t.life.Sleep(t.cfg.ElectionTimeout + t.cfg.TickInterval)
	})
}

// resignTime is the longest time that a member that stops waits until its resignation is written to the connection.
// If it is too short, a busy machine does not get to write it, and the others wait until their promises have ended.
// If the peer hangs, the wait delays the end of the member.
const resignTime = 50 * time.Millisecond

// resign is the last thing that the loop does, even if it panics. From now on this member would not notice that
// another one was elected. If it leads and has a successor, it gives up its lease and releases the
// voters' promises in a message to it. The successor campaigns at once (L6b).
func (l *raftLoop) resign() {
	defer close(l.resigned)
	to := l.successor()
	m, led := l.lease.Resign(to)
	if !led {
		return
	}
	l.links.Send([]*raftpb.Message{m})
	written := l.links.Flush(to, resignTime)
	l.log.Warn("resigned", "to", l.members.Label(to), "term", m.GetTerm(), "written", written)
}

// successor returns the voter that a resigning leader names, raft.None if none can take over at once. The present
// transferee comes first if it has the whole log: it campaigns already, and another candidate would split the vote.
// Right after raft has reset RecentActive no voter seems to answer. Then any connected voter is chosen.
func (l *raftLoop) successor() (to uint64) {
	all, asked := l.otherVoters(raft.None), l.raw.BasicStatus().LeadTransferee
	for i := range all {
		if all[i].id == asked && all[i].match >= l.last.Load() {
			all[i].tries = -1
		}
	}
	if to, _ = chooseTransferee(l.transfers.addConnections(all, raft.None)); to != raft.None {
		return to
	}
	for i := range all {
		all[i].eligible = true
	}
	to, _ = chooseTransferee(l.transfers.addConnections(all, raft.None))
	return to
}

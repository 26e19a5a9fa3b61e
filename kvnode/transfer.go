package kvnode

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// heirTime is after how long another heir is asked to take over, while this member still
// leads, and heirTicks how many ticks that is at least. An heir that campaigns ends that
// sooner: a round trip and writes to a slow disk fit in. Shorter: two campaign at once.
// Longer: nothing is proposed until then.
const (
	heirTime  = 300 * time.Millisecond
	heirTicks = 3
)

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

// transfers hand leadership over: to whom a client names, or to anybody, since this member
// stops or its disk takes no writes.
type transfers struct {
	*parts
	aside atomic.Bool // stepAside is under way
}

// MoveLeader transfers leadership to member to and returns when that has happened. It
// waits for the end of a restart hold that to is in. It fails with ErrNotLeader unless
// this member leads, and with ErrUnknownMember if to is not a voter.
func (t *transfers) MoveLeader(ctx context.Context, to uint64) error {
	if !t.leadership.Leads() {
		return ErrNotLeader
	}
	if m, ok := t.store.Members().ByID[to]; !ok || m.Learner {
		return cannotLead(to)
	}
	if to == t.ID() {
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

func cannotLead(id uint64) error { return fmt.Errorf("%w: %x cannot lead", ErrUnknownMember, id) }

// transferAway makes another member lead, if this one does and any answers.
func (t *transfers) transferAway(ctx context.Context) error {
	if !t.leadership.Leads() {
		return nil
	}
	return t.transfer(ctx, raft.None)
}

// transfer asks members to take over, one after another, until one leads, or only
// the one given. It gives up after the time for which one may be held, and an election
// timeout more. One that was asked and does not campaign has not heard of it, or may
// not: the lease of this member is released for as long as it still could.
func (t *transfers) transfer(ctx context.Context, only uint64) error {
	limit := t.cfg.ElectionTimeout + t.cfg.maxPromise() + 2*t.cfg.TickInterval
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrTimeout)
	defer cancel()
	tries, lookedAgain := make(map[uint64]int), false
	for {
		heirs, err := t.heirs(ctx, only, tries)
		if err != nil {
			return err
		}
		id, wait := chooseHeir(heirs)
		switch {
		case id != raft.None:
			tries[id]++
			lookedAgain = false
			t.askToLead(id)
			wait = max(heirTime, heirTicks*t.cfg.TickInterval)
		case wait == 0 && only != raft.None:
			return cannotLead(only) // it was removed meanwhile
		case wait == 0 && (len(heirs) == 0 || lookedAgain):
			return nil
		case wait == 0:
			// Once in an election timeout raft forgets who answers, until they do again.
			lookedAgain, wait = true, 2*t.cfg.TickInterval
		}
		if done, err := t.awaitHeir(ctx, wait); done || err != nil {
			if err != nil {
				t.askToLead(t.ID()) // which calls it off
			}
			return err
		}
	}
}

// heirs returns those who may be asked to lead: all other voters, or only one.
func (t *transfers) heirs(ctx context.Context, only uint64, tries map[uint64]int) ([]heir, error) {
	all, err := ask(ctx, &t.calls, func(l *raftLoop) []heir { return l.voters(only) })
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].tries = tries[all[i].id]
	}
	return t.reached(all, only), nil
}

// voters returns all other voters, or only one, as the raft of a leader knows them.
func (l *raftLoop) voters(only uint64) (all []heir) {
	l.raw.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id != l.ID() && typ == raft.ProgressTypePeer && (only == raft.None || only == id) {
			all = append(all, heir{id: id, match: pr.Match, answers: pr.RecentActive || only == id})
		}
	})
	return all
}

// reached adds what the links know of those heirs. It asks the lease nothing: a panic may have
// left that locked.
func (t *transfers) reached(all []heir, only uint64) []heir {
	peers, most := t.links.Peers(), t.cfg.maxPromise()
	for i := range all {
		h := &all[i]
		at := slices.IndexFunc(peers, func(p transport.PeerStatus) bool { return p.ID == h.id })
		if at < 0 {
			continue
		}
		h.answers = h.answers && (peers[at].Connected || only == h.id)
		h.held = stillHeld(peers[at].Hello.Hold, time.Since(peers[at].Since), most)
	}
	return all
}

// stillHeld returns what is left of the hold that a member told of so long ago. None
// lasts longer than most: whatever else a member says, leadership must not wait for it.
func stillHeld(said, ago, most time.Duration) time.Duration {
	return max(min(max(said, 0), most)-ago, 0)
}

// askToLead makes raft transfer leadership to member to. To itself means: not at all.
// Raft ignores a request for the one that it transfers to already, so that is called off
// before, or one that has dropped the first request would never hear another.
func (t *transfers) askToLead(to uint64) {
	t.calls.Push(func(l *raftLoop) {
		if l.role != raft.StateLeader {
			return
		}
		if l.raw.BasicStatus().LeadTransferee == to {
			l.raw.TransferLeader(t.ID())
		}
		l.raw.TransferLeader(to)
	})
}

// awaitHeir waits until another member leads, and reports false if this one still
// does when patience has passed. From when it does not, there is an election, which
// is waited for.
func (t *transfers) awaitHeir(ctx context.Context, patience time.Duration) (done bool, err error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		now := t.leadership.current.Load()
		if now.id != t.ID() && now.id != raft.None {
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

// stepAside transfers leadership if the others go on without this member's disk:
// what they commit it cannot apply, since raft applies only what is durable here,
// and so it could answer no linearizable read. If nobody else can write, it stays,
// and serves reads.
func (t *transfers) stepAside() {
	if !t.leadership.Leads() || t.lease.Info().Commit <= t.store.Applied() || t.aside.Swap(true) {
		return
	}
	t.life.Go(func() {
		defer t.aside.Store(false)
		if err := t.transferAway(context.Background()); err != nil && t.logLimits.disk.Allow(t.ID()) {
			t.log.Warn("the disk does not take writes, and leadership was not transferred", "error", err)
		}
		// Each request to take over makes raft count anew to its next look at who
		// answers, and keeps proposals waiting. Both need an election timeout of rest.
		t.life.Sleep(t.cfg.ElectionTimeout + t.cfg.TickInterval)
	})
}

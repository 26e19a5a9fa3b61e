package kvnode

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// proposal is an encoded command on its way to raft.
type proposal struct {
	id    uint64 // of its waiter, and of the command in the entry
	entry *raftpb.Entry
	// again means that it may be proposed in one term after another, each time with that term as its
	// fence. An attempt takes effect in its own term or never, so there is one that does at most.
	again bool
	// impatient means that its client is told ErrNoLeader after an election timeout without a leader.
	impatient bool
	fence     uint64 // of the entry, if again; 0 of what has one of its own (ProposeFenced), which is proposed once
}

// in returns q as it is proposed in a term. The entry is another one then: raft may hold that of an
// attempt before, and the links may not have sent it yet.
func (q proposal) in(term uint64) proposal {
	if q.again && q.fence != term {
		q.entry, q.fence = &raftpb.Entry{Data: store.Refence(q.entry.GetData(), term)}, term
	}
	return q
}

// proposals are what this member proposes, from the view of the clients that wait for it.
// The loop takes what is in the box (offers). The box has no bound of its own: all in it have a
// waiter, or had one until a moment ago, and waiters are bounded.
type proposals struct {
	*parts
	waiters waiters
	box     lifecycle.Mailbox[proposal]
	full    *atomic.Bool // the disk; whoever writes the log sets it (disk.retry, disk.written)
	failed  atomic.Uint64
	voided  atomic.Uint64 // attempts of which nothing became: what they were for is proposed again
}

// Propose replicates r and returns what applying it gave; Result.Err is the
// request's own failure. The error is about the way there: ErrTooLarge,
// ErrTooManyRequests, ErrDiskFull and ErrNoLeader mean that nothing was done.
// After ErrLeaderChanged, ErrTimeout, ErrStopped and ctx's error r may or may
// not take effect. It takes effect once at most: what raft has taken is proposed again only once
// it is in no log of its term, and there its fence keeps it (docs/adr/0027-proposed-again.md).
func (p *proposals) Propose(ctx context.Context, r *pb.InternalRaftRequest) (store.Result, error) {
	return p.submit(ctx, &store.Command{Request: r})
}

// ProposeFenced is Propose for work that only the leader of term may do: it is
// dropped if it is not replicated in that very term. What counts the time of TTL
// leases has a way of its own: here a LeaseRevoke gives store.ErrNoGrant.
func (p *proposals) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error) {
	return p.submit(ctx, &store.Command{Fence: term, Request: r})
}

// submit encodes c under an ID of its own, and refuses what is too large while nothing is done.
func (p *proposals) submit(ctx context.Context, c *store.Command) (store.Result, error) {
	c.ID = p.waiters.nextID()
	q := proposal{id: c.ID, again: c.MayFence()}
	if q.again {
		c.Fence = p.leadership.Term() // mostly that in which it is proposed (proposal.in)
		q.fence = c.Fence
	}
	data, err := c.Encode()
	if err != nil {
		return store.Result{}, err
	}
	if len(data) > p.cfg.MaxRequestBytes {
		return store.Result{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), p.cfg.MaxRequestBytes)
	}
	q.entry = &raftpb.Entry{Data: data}
	return p.await(ctx, q)
}

// await hands q to the loop and waits for what becomes of it. The waiter is there before the
// proposal is in the box, and is taken out on each way from here, or its bytes would count for
// as long as the member runs: by who tells the outcome, or by this goroutine.
func (p *proposals) await(ctx context.Context, q proposal) (_ store.Result, err error) {
	defer func() {
		if err != nil {
			p.failed.Add(1) // whatever became of it: its client was not answered
		}
	}()
	// Refused while nothing is done yet. Without this it would wait for RequestTimeout behind a disk
	// that somebody has to clear, and its client could not know whether it takes effect.
	if p.full.Load() {
		return store.Result{}, ErrDiskFull
	}
	q.impatient = isImpatient(ctx)
	// RequestTimeout bounds the wait of a client whose own context has no end: without a quorum
	// nothing else would give back what its waiter counts for.
	ctx, cancel := p.cfg.bounded(ctx)
	defer cancel()
	w, err := p.waiters.add(q)
	if err != nil {
		return store.Result{}, err
	}
	p.box.Push(q)
	select {
	case o := <-w.done:
		return o.result, o.err
	case <-ctx.Done():
		// The result may have come at the same moment. Whoever has taken the waiter out tells it at
		// once, so this wait is none.
		if p.waiters.remove(q.id) == nil {
			o := <-w.done
			return o.result, o.err
		}
		// The loop may be held up. What it is yet to take counts no more, and others come.
		p.box.DeleteFirst(func(o proposal) bool { return o.id == q.id })
		return store.Result{}, p.overdue(ctx, w)
	case <-p.life.Stopping():
		// The outcome may be there as well. ErrStopped, which leaves it open, is true all the same.
		p.waiters.remove(q.id)
		return store.Result{}, ErrStopped
	}
}

// overdue says what it means that ctx has ended. It reads proposed without the lock, which is
// sound once w is out of the map: propose and park find it no more. ErrNoLeader promises that
// nothing was done, so it is for those alone that raft has not taken.
func (p *proposals) overdue(ctx context.Context, w *waiter) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case !w.proposed && p.leadership.Leader() == raft.None:
		return ErrNoLeader
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	default:
		return ctx.Err()
	}
}

// reached is told by the applier of the first entry of a term, when all before it is applied. What was
// handed out in a former term and has not been applied is in no log that counts, and never will be
// in one of its own term: it is proposed once more, and its client notices nothing.
func (p *proposals) reached(term uint64) {
	void := p.waiters.void(term)
	p.voided.Add(uint64(len(void)))
	if len(void) > 0 {
		p.log.Info("proposed again, as a former leader has not replicated them", "proposals", len(void), "term", term)
		p.box.Push(void...)
	}
}

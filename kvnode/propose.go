package kvnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/store"
)

// proposal is an encoded command on its way to raft.
type proposal struct {
	id    uint64
	entry *raftpb.Entry
}

// Propose replicates r and returns what applying it gave; Result.Err is the
// request's own failure. The error is about the way there: ErrTooLarge,
// ErrTooManyRequests, ErrDiskFull and ErrNoLeader mean that nothing was done.
// After ErrLeaderChanged, ErrTimeout, ErrStopped and ctx's error r may or may
// not take effect.
func (n *Node) Propose(ctx context.Context, r *pb.InternalRaftRequest) (store.Result, error) {
	return n.submit(ctx, &store.Command{Request: r})
}

// ProposeFenced is Propose for work that only the leader of term may do: it is
// dropped if it is not replicated in that very term. What counts the time of TTL
// leases has a way of its own: here a LeaseRevoke gives store.ErrNoGrant.
func (n *Node) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error) {
	return n.submit(ctx, &store.Command{Fence: term, Request: r})
}

func (n *Node) submit(ctx context.Context, c *store.Command) (store.Result, error) {
	c.ID = n.waiters.id()
	data, err := c.Encode()
	if err != nil {
		return store.Result{}, err
	}
	if len(data) > n.cfg.MaxRequestBytes {
		return store.Result{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), n.cfg.MaxRequestBytes)
	}
	return n.await(ctx, proposal{id: c.ID, entry: &raftpb.Entry{Data: data}})
}

// await hands p to the loop and waits for what becomes of it.
func (n *Node) await(ctx context.Context, p proposal) (store.Result, error) {
	r, err := n.awaitResult(ctx, p)
	if err != nil {
		n.counts.failedProposals.Add(1)
	}
	return r, err
}

func (n *Node) awaitResult(ctx context.Context, p proposal) (store.Result, error) {
	if n.disk.full.Load() {
		return store.Result{}, ErrDiskFull
	}
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	w, err := n.waiters.add(p.id, int64(len(p.entry.GetData())))
	if err != nil {
		return store.Result{}, err
	}
	n.proposals.put(p)
	select {
	case o := <-w.done:
		return o.result, o.err
	case <-ctx.Done():
		// The result may have come at the same moment.
		if n.waiters.remove(p.id) == nil {
			o := <-w.done
			return o.result, o.err
		}
		// The loop may be held up. What it is yet to take counts no more, and others come.
		n.proposals.drop(func(q proposal) bool { return q.id == p.id })
		return store.Result{}, n.overdue(ctx, w)
	case <-n.stopping:
		n.waiters.remove(p.id)
		return store.Result{}, ErrStopped
	}
}

// overdue says what it means that ctx has ended.
func (n *Node) overdue(ctx context.Context, w *waiter) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case !w.proposed && n.Leader() == raft.None:
		return ErrNoLeader
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	default:
		return ctx.Err()
	}
}

// withTimeout bounds ctx by RequestTimeout if it has no deadline.
func (n *Node) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, n.cfg.RequestTimeout, ErrTimeout)
}

// maxHold bounds how long a batch that is not committed holds up the next one,
// while the loop has something to do. It matters where the quorum is far away, or
// slow: longer adds as much to a write's latency, shorter makes small batches of
// what a busy member is late with.
const maxHold = 10 * time.Millisecond

// mayPropose makes a leader finish one batch before it proposes the next. What
// arrives meanwhile shares the fixed costs of messages, syncs and answers, and
// would have waited for the disks anyway. A write that comes alone waits for
// nobody.
func (n *Node) mayPropose() bool {
	l := &n.loop
	if l.role != raft.StateLeader || l.commit >= n.last.Load() {
		return true
	}
	return time.Since(l.offered) > maxHold
}

// takeProposals puts what has come behind what waits.
func (n *Node) takeProposals() {
	l, o := &n.loop, &n.loop.offers
	if len(o.own) > 0 {
		o.own = append(o.own, n.proposals.take(nil)...)
		l.spare = nil // its array may be that of own
		return
	}
	l.spare = n.proposals.take(l.spare)
	if o.own = l.spare; len(o.own) > 0 {
		o.wait(n.ID())
	}
}

// maxOffer bounds the entries of one message to raft, which is the unit it takes
// or drops.
const maxOffer = 256 << 10

// offerOwn offers raft this member's next proposals, and returns whether it has taken
// them.
func (n *Node) offerOwn() bool {
	l, o := &n.loop, &n.loop.offers
	if len(o.own) == 0 {
		return true // nobody waited any more
	}
	k := firstOffer(o.own)
	ps := n.waiters.propose(o.own[:k])
	if len(ps) > 0 {
		err := n.tryPropose(propMessage(n.ID(), ps))
		if errors.Is(err, raft.ErrProposalDropped) {
			n.waiters.park(ps)
			gone := k - len(ps)
			copy(o.own[gone:k], ps)
			o.own = o.own[gone:]
			return false
		}
		l.offered = time.Now()
		if err != nil {
			for _, p := range ps {
				n.waiters.fail(p.id, err)
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

package leaderlease

import (
	"cmp"
	"context"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Wrap puts the lease between an embedder's loop and its raft.Node: use the returned Node in the place
// of the inner one, call Applied, and read through the Lease. Ready, Step, Tick, Campaign,
// ApplyConfChange and Stop pass through the lease; the other methods are the inner Node's. Do not use the inner
// Node any more. Stop also stops the inner Node, and drops a Ready that Lease.Ready would hold back.
// Embedders that call ProcessDied pass a context of WithProcess to Step.
//
// An embedder that rejects a configuration change, and so does not call ApplyConfChange, calls
// ApplyConfState with the entry's index and the unchanged configuration.
//
// StartNode and RestartNode of this package also make the inner Node. Wrap is for a Node that is made
// elsewhere: the caller keeps the rules of New about Config and Storage, and stops the inner Node if
// Wrap returns an error.
func Wrap(inner raft.Node, cfg Config) (raft.Node, *Lease, error) {
	l, err := New(cfg)
	if err != nil {
		return nil, nil, err
	}
	return wrap(inner, l), l, nil
}

// wrap puts l in front of inner. inner has read Storage by now, and its first Ready reaches l before the
// caller can write it. So Storage need not be read again (recheckStorageLocked), and must not: the caller may
// use it meanwhile, and MemoryStorage.InitialState takes no lock.
func wrap(inner raft.Node, l *Lease) raft.Node {
	l.mu.Lock()
	l.mu.checks.storageRechecked = true
	l.mu.Unlock()
	n := &node{Node: inner, lease: l, ready: make(chan raft.Ready), stop: make(chan struct{})}
	n.stopping, n.cancel = context.WithCancel(context.Background())
	n.pumps.Go(n.pumpReady)
	n.pumps.Go(n.pumpReads)
	return n
}

// node is a raft.Node with a lease in front of it.
type node struct {
	raft.Node
	lease *Lease
	ready chan raft.Ready

	once     sync.Once
	stop     chan struct{}
	stopping context.Context
	cancel   context.CancelFunc
	pumps    sync.WaitGroup
}

// pumpReady filters each Ready before the embedder sees it. The Ready then waits for the embedder, so its
// probes leave after the instant that they name. That only makes the lease shorter.
func (n *node) pumpReady() {
	// Even after a panic, no lease outlives the pump (L7).
	defer n.lease.Close()
	for {
		select {
		case rd, ok := <-n.Node.Ready():
			if !ok {
				return
			}
			if !n.lease.holdBack(&rd, n.stop) {
				return
			}
			n.lease.ready(&rd)
			select {
			case n.ready <- rd:
			case <-n.stop:
				return
			}
		case <-n.stop:
			return
		}
	}
}

// pumpReads hands the lease's read requests to raft.
func (n *node) pumpReads() {
	for {
		select {
		case rctx := <-n.lease.ReadRequests():
			// Tick repeats a request that raft did not take.
			_ = n.Node.ReadIndex(n.stopping, rctx)
		case <-n.stop:
			return
		}
	}
}

// Ready returns the filtered Readys.
func (n *node) Ready() <-chan raft.Ready { return n.ready }

// processKey is the key of the ProcessID in a context.
type processKey struct{}

// WithProcess returns a context that names the process that sent a message. Step of a Node that Wrap,
// StartNode or RestartNode has returned tells Incoming that process. Only embedders that call ProcessDied
// need it. One context per connection is enough:
//
//	node.Step(leaderlease.WithProcess(ctx, from), m)
func WithProcess(ctx context.Context, from ProcessID) context.Context {
	return context.WithValue(ctx, processKey{}, from)
}

// Step passes m to raft if the lease admits it, after RaiseCommit.
func (n *node) Step(ctx context.Context, m *raftpb.Message) error {
	if m != nil {
		from, _ := ctx.Value(processKey{}).(ProcessID)
		if !n.lease.Incoming(m, from) {
			return nil
		}
		n.raiseCommit(ctx, m)
	}
	return n.Node.Step(ctx, m)
}

// Tick ticks raft if the lease permits it.
func (n *node) Tick() {
	if n.lease.Tick() {
		n.Node.Tick()
	}
}

// Campaign fails with a *NoLeaseError while a promise or the restart hold binds this node.
func (n *node) Campaign(ctx context.Context) error {
	if err := n.lease.CanCampaign(); err != nil {
		return err
	}
	return n.Node.Campaign(ctx)
}

// ApplyConfChange applies cc and tells the lease.
func (n *node) ApplyConfChange(cc raftpb.ConfChangeI) *raftpb.ConfState {
	cs := n.Node.ApplyConfChange(cc)
	if cs != nil {
		n.lease.applyNextConfState(cs)
	}
	return cs
}

// Stop gives the lease up, stops the inner Node and waits for both.
func (n *node) Stop() {
	n.once.Do(func() {
		n.lease.Close()
		close(n.stop)
		n.cancel()
	})
	n.Node.Stop()
	n.pumps.Wait()
}

// CanCampaign returns nil if this node may campaign. While it is bound it returns a *NoLeaseError: with
// StatusRestartHold in the restart hold, and with StatusNotLeader under a promise. Call it before
// Campaign: a bound node that campaigns cannot win, and its Ready may block (V4, V5).
func (l *Lease) CanCampaign() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.nowLocked()
	switch {
	case l.mu.guard.InRestartHold(now):
		return l.noLeaseLocked(core.RestartHold)
	case l.mu.guard.Bound(now):
		refused := l.noLeaseLocked(core.NotLeader)
		refused.RetryAfter = l.mu.guard.Info(now).Remaining
		refused.Err = cmp.Or(refused.Err, errBound)
		return refused
	default:
		return nil
	}
}

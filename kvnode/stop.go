package kvnode

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Stop hands leadership over, if this member has it and somebody takes it before
// ctx ends, makes a last checkpoint and stops. Requests that are under way fail
// with ErrStopped.
func (n *Node) Stop(ctx context.Context) error {
	if err := n.handOver(ctx); err != nil {
		n.log.Warn("kvnode: leadership was not handed over", "error", err)
	}
	n.stopOnce.Do(func() { close(n.stopping) })
	n.shutdown()
	return n.Err()
}

// fail stops the node because of err. It returns at once: its callers are the
// goroutines that the stop waits for.
func (n *Node) fail(err error) {
	n.stopOnce.Do(func() {
		n.failure.Store(&err)
		n.log.Error("kvnode: failed", "error", err)
		close(n.stopping)
		go n.shutdown()
	})
}

func (n *Node) isStopping() bool {
	select {
	case <-n.stopping:
		return true
	default:
		return false
	}
}

// shutdown ends every goroutine, from those that bring work to those that do it.
func (n *Node) shutdown() {
	n.shutdownOnce.Do(func() {
		<-n.begun // a peer may have refused this member already
		n.lease.Close()
		n.waiters.failAll(ErrStopped)
		_ = n.links.Close()
		n.applies.close()
		n.appender.Close()
		n.workers.Wait()
		n.watch.Close()
		if n.Err() == nil {
			if err := n.checkpoint(); err != nil {
				n.log.Warn("kvnode: no last checkpoint", "error", err)
			}
		}
		if err := n.closeFiles(); err != nil {
			n.log.Error("kvnode: close", "error", err)
		}
		n.log.Info("kvnode: stopped")
		close(n.stopped)
	})
	<-n.stopped
}

// closeFiles closes what openFiles has opened.
func (n *Node) closeFiles() (err error) {
	if n.store != nil {
		err = n.store.Close()
	}
	if n.wal != nil {
		err = errors.Join(err, n.wal.Close())
	}
	if n.lock != nil { // last
		err = errors.Join(err, n.lock.Close())
	}
	return err
}

// MoveLeader hands leadership to member to and returns when that has happened.
// It fails with ErrNotLeader unless this member leads, and with ErrUnknownMember
// if to is not a voter.
func (n *Node) MoveLeader(ctx context.Context, to uint64) error {
	if n.Leader() != n.ID() {
		return ErrNotLeader
	}
	if m, ok := n.store.Members().ByID[to]; !ok || m.Learner {
		return fmt.Errorf("%w: %x cannot lead", ErrUnknownMember, to)
	}
	return n.transfer(ctx, to)
}

// transfer returns when to leads, or raft has given up: after an election
// timeout.
func (n *Node) transfer(ctx context.Context, to uint64) error {
	if to == n.ID() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.ElectionTimeout+2*n.cfg.TickInterval, ErrTimeout)
	defer cancel()
	if !n.call(func() { n.loop.raw.TransferLeader(to) }) {
		return ErrStopped
	}
	for {
		now := n.leader.Load()
		if now.id == to {
			return nil
		}
		if now.id != n.ID() && now.id != raft.None {
			return fmt.Errorf("%w: %x leads, not %x", ErrLeaderChanged, now.id, to)
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.stopping:
			return ErrStopped
		}
	}
}

// handOver transfers leadership to the follower that is furthest, if there is
// one that answers.
func (n *Node) handOver(ctx context.Context) error {
	if n.Leader() != n.ID() {
		return nil
	}
	found := make(chan uint64, 1)
	n.calls.put(func() { found <- n.furthest() })
	var best uint64
	select {
	case best = <-found:
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stopping:
		return ErrStopped
	}
	if best == raft.None {
		return nil
	}
	return n.transfer(ctx, best)
}

// furthest returns the voter that has most of the log of those that answer, 0 if
// none does. The loop asks.
func (n *Node) furthest() (best uint64) {
	match := uint64(0)
	n.loop.raw.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id != n.ID() && typ == raft.ProgressTypePeer && pr.RecentActive && pr.Match > match {
			best, match = id, pr.Match
		}
	})
	return best
}

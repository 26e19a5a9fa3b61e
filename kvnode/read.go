package kvnode

import (
	"context"
	"errors"
	"time"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/leaderlease"
)

// Read is a read that the store may answer now.
type Read struct {
	// Path says how it was made linearizable: a leaderlease.Path's name, log or
	// serializable.
	Path string
	// Remaining is for how long the lease would still have served; 0 unless Path
	// is lease.
	Remaining time.Duration
	// Term is the newest term this member knew.
	Term uint64
}

const (
	pathLog          = "log"
	pathSerializable = "serializable"
)

// Read returns once Store may answer a read in that mode; the value must be
// fetched afterwards. Where there is no leader it waits for one until ctx ends,
// or RequestTimeout has passed: nothing is done by a read that fails, so trying
// again is free. A stale read waits only after a start (replay.go).
//
// Under a valid lease it takes no lock and allocates nothing.
func (n *Node) Read(ctx context.Context, mode ReadMode) (Read, error) {
	if mode == ReadAuto {
		mode = n.cfg.ReadMode
	}
	switch mode {
	case ReadSerializable:
		if err := n.awaitReplay(ctx); err != nil {
			return Read{}, err
		}
		return Read{Path: pathSerializable, Term: n.Term()}, nil
	case ReadLog:
		// A command without effect takes its place among the writes.
		if _, err := n.submit(ctx, &store.Command{}); err != nil {
			return Read{}, err
		}
		return Read{Path: pathLog, Term: n.Term()}, nil
	case ReadIndex:
		return n.readByRound(ctx, n.lease.ReadIndex)
	default:
		return n.readUntil(ctx, n.lease.Read)
	}
}

// readByRound goes through the log where the leader runs a version that makes no
// round for others.
func (n *Node) readByRound(ctx context.Context, round func(context.Context) (leaderlease.Read, error)) (Read, error) {
	r, err := n.readUntil(ctx, round)
	if errors.Is(err, leaderlease.ErrNoRound) {
		return n.Read(ctx, ReadLog)
	}
	return r, err
}

// readUntil tries again after each change of the leader, and counts what fails. That
// its client has gone is no failure.
func (n *Node) readUntil(ctx context.Context, read func(context.Context) (leaderlease.Read, error)) (Read, error) {
	r, err := n.tryUntil(ctx, read)
	if err != nil && !errors.Is(err, context.Canceled) {
		n.counts.failedReads.Add(1)
	}
	return r, err
}

func (n *Node) tryUntil(ctx context.Context, read func(context.Context) (leaderlease.Read, error)) (Read, error) {
	if _, ok := ctx.Deadline(); !ok && !n.readsAtOnce() {
		// What it waits for may never come: a state machine behind a full disk, say.
		bounded, cancel := n.withTimeout(ctx)
		defer cancel()
		ctx = bounded
	}
	r, err := read(ctx)
	if err == nil {
		return Read{Path: r.Path.String(), Remaining: r.Remaining, Term: r.Term}, nil
	}
	if !retryable(err) {
		return Read{}, n.readError(ctx, err)
	}
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	for retryable(err) {
		if waitErr := n.waitLeader(ctx); waitErr != nil {
			return Read{}, n.readError(ctx, errors.Join(waitErr, err))
		}
		if r, err = read(ctx); err == nil {
			return Read{Path: r.Path.String(), Remaining: r.Remaining, Term: r.Term}, nil
		}
	}
	return Read{}, n.readError(ctx, err)
}

// readsAtOnce reports whether a read under the lease would not have to wait.
func (n *Node) readsAtOnce() bool {
	index, status := n.lease.TryRead()
	return status == leaderlease.Valid && n.store.Applied() >= index
}

// retryable: misuse and Close are final, everything else changes.
func retryable(err error) bool {
	var refused *leaderlease.NoLeaseError
	return errors.As(err, &refused) && refused.Status != leaderlease.Closed && refused.Err == nil
}

// readPause bounds how often a read that is refused although there is a leader
// is tried again.
const readPause = 10 * time.Millisecond

// waitLeader waits for a leader, and for a moment if there is one.
func (n *Node) waitLeader(ctx context.Context) error {
	now := n.leader.Load()
	pause := time.NewTimer(readPause)
	defer pause.Stop()
	expired := pause.C
	if now.id == 0 {
		expired = nil
	}
	select {
	case <-now.changed:
		return nil
	case <-expired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stopping:
		return ErrStopped
	}
}

// readError says in this package's terms why a read was not served.
func (n *Node) readError(ctx context.Context, err error) error {
	select {
	case <-n.stopping:
		return ErrStopped
	default:
	}
	switch {
	case n.Leader() == 0 && (errors.Is(err, leaderlease.ErrNoLease) || errors.Is(err, context.DeadlineExceeded)):
		return ErrNoLeader
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	default:
		return err
	}
}

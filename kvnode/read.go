package kvnode

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
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

// reads are made linearizable here, or wait until they may be stale.
type reads struct {
	*parts
	proposals *proposals.Pending
	replay    replay
	failed    atomic.Uint64
}

// Read returns once Store may answer a read in that mode; the value must be
// fetched afterwards. Where there is no leader it waits for one until ctx ends,
// or RequestTimeout has passed, or as FailWithoutLeader says: nothing is done by a read that fails, so trying
// again is free. A stale read waits only after a start (replay.go).
//
// Under a valid lease it takes no lock and allocates nothing.
func (o *reads) Read(ctx context.Context, mode ReadMode) (Read, error) {
	if mode == ReadAuto {
		mode = o.cfg.ReadMode
	}
	switch mode {
	case ReadSerializable:
		if err := o.waitForReplayInTime(ctx); err != nil {
			return Read{}, err
		}
		return Read{Path: pathSerializable, Term: o.leadership.Term()}, nil
	case ReadLog:
		// A command without effect takes its place among the writes.
		if _, err := o.proposals.Submit(ctx, &store.Command{}); err != nil {
			return Read{}, err
		}
		return Read{Path: pathLog, Term: o.leadership.Term()}, nil
	case ReadIndex:
		return o.byRound(ctx, o.lease.ReadIndex)
	default:
		return o.until(ctx, o.lease.Read)
	}
}

// byRound goes through the log where the leader runs a version that makes no
// round for others.
func (o *reads) byRound(ctx context.Context, round func(context.Context) (leaderlease.ReadResult, error)) (Read, error) {
	r, err := o.until(ctx, round)
	if errors.Is(err, leaderlease.ErrLeaderTooOld) {
		return o.Read(ctx, ReadLog)
	}
	return r, err
}

// until tries again after each change of the leader, and counts what fails. That
// its client has gone is no failure.
func (o *reads) until(ctx context.Context, read func(context.Context) (leaderlease.ReadResult, error)) (_ Read, err error) {
	defer func() {
		if err != nil && !errors.Is(err, context.Canceled) {
			o.failed.Add(1)
		}
	}()
	if _, ok := ctx.Deadline(); !ok && !o.atOnce() {
		// What it waits for may never come: a state machine behind a full disk, say.
		bounded, cancel := o.cfg.bounded(ctx)
		defer cancel()
		ctx = bounded
	}
	r, err := read(ctx)
	if retryable(err) {
		bounded, cancel := o.cfg.bounded(ctx)
		defer cancel()
		ctx = bounded
	}
	for patience := o.patienceOf(ctx); retryable(err); {
		if waitErr := o.waitLeader(ctx, &patience); waitErr != nil {
			err = errors.Join(waitErr, err)
			break
		}
		r, err = read(ctx)
	}
	if err != nil {
		return Read{}, o.explain(ctx, err)
	}
	return Read{Path: r.Path.String(), Remaining: r.Remaining, Term: r.Term}, nil
}

// TryRead reports whether Store may answer now what Read would permit under the lease at
// once. It may be asked once for many reads, if all of them had arrived before; the values
// must be fetched afterwards. It takes no lock and allocates nothing.
func (o *reads) TryRead() bool { return o.cfg.ReadMode == ReadLease && o.atOnce() }

// atOnce reports whether a read under the lease would not have to wait.
func (o *reads) atOnce() bool {
	index, status := o.lease.TryRead()
	return status == leaderlease.StatusValid && o.store.Applied() >= index
}

// retryable: misuse and Close are final, everything else changes.
func retryable(err error) bool {
	refused, ok := errors.AsType[*leaderlease.NoLeaseError](err)
	return ok && refused.Status != leaderlease.StatusClosed && refused.Err == nil
}

// readPause bounds how often a read that is refused although there is a leader
// is tried again.
const readPause = 10 * time.Millisecond

// waitLeader waits for a leader, and for a moment if there is one.
func (o *reads) waitLeader(ctx context.Context, p *patience) error {
	now := o.leadership.current.Load()
	over, stop := p.over(now.id, time.Now())
	defer stop()
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
	case <-over:
		return ErrNoLeader
	case <-ctx.Done():
		return ctx.Err()
	case <-o.life.Stopping():
		return ErrStopped
	}
}

// explain says in this package's terms why a read was not served.
func (o *reads) explain(ctx context.Context, err error) error {
	switch {
	case o.life.IsStopping():
		return ErrStopped
	case errors.Is(err, ErrNoLeader), o.leadership.Leader() == 0 && (errors.Is(err, leaderlease.ErrNoLease) || errors.Is(err, context.DeadlineExceeded)):
		return ErrNoLeader
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	default:
		return err
	}
}

// WaitForReplay returns once a stale read may be served (replay.go), or when ctx ends. Only ctx
// bounds it, for requests that last, such as watches.
func (o *reads) WaitForReplay(ctx context.Context) error {
	if o.replay.isOver() {
		return nil
	}
	select {
	case <-o.replay.served:
		return nil
	case <-o.life.Stopping():
		return ErrStopped
	case <-ctx.Done():
		return o.explain(ctx, ctx.Err())
	}
}

// waitForReplayInTime is WaitForReplay bounded by RequestTimeout. It takes no lock once stale reads
// are served.
func (o *reads) waitForReplayInTime(ctx context.Context) error {
	if o.replay.isOver() {
		return nil
	}
	ctx, cancel := o.cfg.bounded(ctx)
	defer cancel()
	return o.WaitForReplay(ctx)
}

package kvnode

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
)

// ReadMode says how a read is made linearizable.
type ReadMode uint8

const (
	// ReadAuto stands for Config.ReadMode.
	ReadAuto ReadMode = iota
	// ReadLease reads under the leader lease, or with a quorum round if there is no valid lease.
	ReadLease
	// ReadIndex reads with a quorum round in any case, and so relies on no clock. On a follower the leader
	// makes the round. If the leader runs a version that makes no rounds for followers, it is ReadLog.
	ReadIndex
	// ReadLog goes through the log, as a write does.
	ReadLog
	// ReadSerializable is not linearizable: it reads local state, which may be stale.
	ReadSerializable
)

var readModes = [...]string{"auto", "lease", "read-index", "log", "serializable"}

// String returns the name that ParseReadMode takes.
func (m ReadMode) String() string {
	if int(m) < len(readModes) {
		return readModes[m]
	}
	return fmt.Sprintf("ReadMode(%d)", uint8(m))
}

// ParseReadMode returns the mode with that name.
func ParseReadMode(name string) (ReadMode, error) {
	for m, s := range readModes {
		if s == name {
			return ReadMode(m), nil
		}
	}
	return 0, fmt.Errorf("read mode %q must be one of %v", name, readModes)
}

// Read is a read that the store may answer now.
type Read struct {
	// Path says how it was made linearizable: the name of a leaderlease.Path, log or serializable.
	Path string
	// Remaining is the remaining time of the lease; 0 unless Path is lease.
	Remaining time.Duration
	// Term is the newest term this member knew.
	Term uint64
}

const (
	pathLog          = "log"
	pathSerializable = "serializable"
)

// Read returns once Store may answer a read in that mode. The caller fetches the value afterwards. Without a leader
// Read waits for one until ctx ends (RequestTimeout, if it has no deadline), or for less time with FailWithoutLeader.
// A read that fails does nothing, so it may be tried again. A serializable read waits only after a start (replay).
//
// Under a valid lease Read takes no lock and allocates nothing.
func (n *Node) Read(ctx context.Context, mode ReadMode) (Read, error) { return n.reads.read(ctx, mode) }

// TryRead reports whether Store may answer a read under the lease now, without waiting. It is false unless
// Config.ReadMode is ReadLease. One call serves all reads that have arrived before it. The caller fetches the
// values afterwards. TryRead takes no lock and allocates nothing.
func (n *Node) TryRead() bool { return n.cfg.ReadMode == ReadLease && n.reads.atOnce() }

// WaitForReplay returns once a stale read may be served (replay), or when ctx ends. RequestTimeout does not limit it,
// because long requests use it, such as watches.
func (n *Node) WaitForReplay(ctx context.Context) error { return n.reads.waitForReplay(ctx) }

// reads makes reads linearizable. Its methods are safe for concurrent use.
type reads struct {
	// Immutable.
	cfg        *Config
	lease      *leaderlease.Lease
	store      *store.Store
	links      *transport.Transport
	leadership *leadership
	proposals  *proposals.Pending
	replay     *replay
	life       *lifecycle.Lifecycle

	failed atomic.Uint64
}

func (r *reads) read(ctx context.Context, mode ReadMode) (Read, error) {
	if mode == ReadAuto {
		mode = r.cfg.ReadMode
	}
	switch mode {
	case ReadSerializable:
		if err := r.waitForReplayInTime(ctx); err != nil {
			return Read{}, err
		}
		return Read{Path: pathSerializable, Term: r.leadership.Term()}, nil
	case ReadLog:
		// A command without effect is ordered among the writes.
		if _, err := r.proposals.Submit(ctx, &store.Command{}); err != nil {
			return Read{}, err
		}
		return Read{Path: pathLog, Term: r.leadership.Term()}, nil
	case ReadIndex:
		return r.roundOrLog(ctx, r.lease.ReadIndex)
	default:
		return r.retry(ctx, r.lease.Read)
	}
}

// roundOrLog calls round. If the leader runs a version that makes no rounds for followers, it reads through the log.
func (r *reads) roundOrLog(ctx context.Context, round func(context.Context) (leaderlease.ReadResult, error)) (Read, error) {
	got, err := r.retry(ctx, round)
	if errors.Is(err, leaderlease.ErrLeaderTooOld) {
		return r.read(ctx, ReadLog)
	}
	return got, err
}

// retry calls read until it succeeds, fails for good or ctx ends. Between two calls it waits for a change of the
// leader, or for readPause. A read that its client has cancelled, or that goes through the log next, does not count
// as failed.
func (r *reads) retry(ctx context.Context, read func(context.Context) (leaderlease.ReadResult, error)) (_ Read, err error) {
	client := ctx
	defer func() {
		cancelled := errors.Is(err, context.Canceled) || errors.Is(client.Err(), context.Canceled)
		if err != nil && !cancelled && !errors.Is(err, leaderlease.ErrLeaderTooOld) {
			r.failed.Add(1)
		}
	}()
	if _, ok := ctx.Deadline(); !ok && !r.atOnce() {
		// The read may have to wait for its index to be applied, and with a full disk that takes long.
		bounded, cancel := r.cfg.bounded(ctx)
		defer cancel()
		ctx = bounded
	}
	got, err := read(ctx)
	if isRetryable(err) {
		bounded, cancel := r.cfg.bounded(ctx)
		defer cancel()
		ctx = bounded
	}
	wait := leaderWait{}
	if proposals.FailsWithoutLeader(ctx) {
		wait.limit = r.cfg.ElectionTimeout
	}
	for isRetryable(err) {
		if waitErr := r.waitLeader(ctx, &wait); waitErr != nil {
			err = errors.Join(waitErr, err)
			break
		}
		got, err = read(ctx)
	}
	if err != nil {
		return Read{}, r.explain(ctx, err)
	}
	return Read{Path: got.Path.String(), Remaining: got.Remaining, Term: got.Term}, nil
}

// atOnce reports whether a read under the lease would not wait.
func (r *reads) atOnce() bool {
	index, status := r.lease.TryRead()
	return status == leaderlease.StatusValid && r.store.Applied() >= index
}

// isRetryable reports whether the same read may succeed later: not if the lease is closed, or was misused.
func isRetryable(err error) bool {
	refused, ok := errors.AsType[*leaderlease.NoLeaseError](err)
	return ok && refused.Status != leaderlease.StatusClosed && refused.Err == nil
}

// readPause is the pause before a read is tried again if it was refused although there is a leader.
const readPause = 10 * time.Millisecond

// waitLeader waits until the leader changes or, if there is a leader, for at most readPause.
func (r *reads) waitLeader(ctx context.Context, wait *leaderWait) error {
	now := r.leadership.current.Load()
	over, stop := wait.timer(now.id, time.Now())
	defer stop()
	pause := time.NewTimer(readPause)
	defer pause.Stop()
	expired := pause.C
	if now.id == raft.None {
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
	case <-r.life.Stopping():
		return ErrStopped
	}
}

// leaderWait limits how long a read waits without a leader. The zero value has no limit.
type leaderWait struct {
	limit time.Duration
	since time.Time // since when there is no leader; zero while there is one
}

// timer returns a channel that delivers when there has been no leader for the limit, and a function that stops its
// timer. The channel is nil if there is a leader or no limit.
func (w *leaderWait) timer(leader uint64, now time.Time) (over <-chan time.Time, stop func()) {
	if leader != raft.None {
		w.since = time.Time{}
	}
	if leader != raft.None || w.limit == 0 {
		return nil, func() {}
	}
	if w.since.IsZero() {
		w.since = now
	}
	timer := time.NewTimer(w.since.Add(w.limit).Sub(now))
	return timer.C, func() { timer.Stop() }
}

// explain returns the error of this package for a read that was not served.
func (r *reads) explain(ctx context.Context, err error) error {
	switch {
	case r.life.IsStopping():
		return ErrStopped
	case errors.Is(err, ErrNoLeader), r.leadership.Leader() == 0 && (errors.Is(err, leaderlease.ErrNoLease) || errors.Is(err, context.DeadlineExceeded)):
		return ErrNoLeader
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	default:
		return err
	}
}

func (r *reads) waitForReplay(ctx context.Context) error {
	if r.replay.isOver() {
		return nil
	}
	select {
	case <-r.replay.served:
		return nil
	case <-r.life.Stopping():
		return ErrStopped
	case <-ctx.Done():
		return r.explain(ctx, ctx.Err())
	}
}

// waitForReplayInTime is waitForReplay, bounded by RequestTimeout.
func (r *reads) waitForReplayInTime(ctx context.Context) error {
	if r.replay.isOver() {
		return nil
	}
	ctx, cancel := r.cfg.bounded(ctx)
	defer cancel()
	return r.waitForReplay(ctx)
}

// forward sends a follower's read request to the leader at once, as raft would after a turn of the loop. The lease
// calls it with its lock held, so it neither waits nor takes that lock. If there is no leader, or this member leads,
// the loop takes the request.
//
// It uses raftLeader, which is set before the lease learns of a new leader. leadership.Leader may still be a former
// leader, which drops the request.
func (r *reads) forward() {
	leader := r.leadership.raftLeader.Load()
	if leader == raft.None || leader == r.leadership.self {
		return
	}
	select {
	case rctx := <-r.lease.ReadRequests():
		r.links.Send([]*raftpb.Message{{
			Type: raftpb.MsgReadIndex.Enum(), From: new(r.leadership.self), To: new(leader), Entries: []*raftpb.Entry{{Data: rctx}},
		}})
	default: // the loop was faster
	}
}

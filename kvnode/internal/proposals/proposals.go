// Package proposals takes the commands of a member's clients to raft, and the outcomes back.
//
// Clients use Pending: Submit encodes a command, hands it to the raft loop, and waits for the outcome,
// which the applier and the loop report. The raft loop owns a Queue. It holds this member's proposals and, on
// a leader, those that followers have forwarded, and offers them to raft, one message of each member in turn.
// Quota bounds what the leader's Queue holds for one follower.
//
// Invariants:
//   - A proposal has one outcome. Its waiter is registered before the raft loop sees the proposal. The
//     goroutine that removes the waiter, and no other, sends the outcome.
//   - A command takes effect at most once. After a change of the leader a repeatable command is proposed
//     again, but each attempt requires its own term, and has no effect in another term
//     (docs/adr/0027-proposed-again.md).
//   - Memory is bounded: Config.MaxCount and Config.MaxBytes for this member's proposals, Quota for those of a
//     follower.
package proposals

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
)

var (
	// ErrNoLeader means that no leader is known. Nothing was done.
	ErrNoLeader = errors.New("kvnode: no leader")
	// ErrNotLeader means that only the leader can do that.
	ErrNotLeader = errors.New("kvnode: not the leader")
	// ErrLeaderChanged means that leadership moved during the request. A write may or may not take effect.
	ErrLeaderChanged = errors.New("kvnode: leader changed")
	// ErrTimeout means that the request timeout ran out. A write may or may not take effect.
	ErrTimeout = errors.New("kvnode: request timed out")
	// ErrTooManyRequests means that too many proposals wait for their outcomes. Nothing was done.
	ErrTooManyRequests = errors.New("kvnode: too many requests")
	// ErrTooLarge means that a command exceeds Config.MaxRequestBytes. Nothing was done.
	ErrTooLarge = errors.New("kvnode: request is too large")
	// ErrDiskFull means that this member's disk is full: it takes no writes until there is free space.
	// Nothing was done.
	ErrDiskFull = errors.New("kvnode: disk is full")
)

// FailWithoutLeader is the type of a context key. A request with this key in its context fails with ErrNoLeader
// once it has waited without a leader for an election timeout, unless raft has taken the request. Other requests wait
// for a leader until their context ends, or for the request timeout.
// docs/operations/change.md has all cases, under "Without a quorum".
type FailWithoutLeader struct{}

// FailsWithoutLeader reports whether ctx has a value for FailWithoutLeader.
func FailsWithoutLeader(ctx context.Context) bool { return ctx.Value(FailWithoutLeader{}) != nil }

// Config configures Pending. All fields are required.
type Config struct {
	MaxRequestBytes int   // of one encoded command
	MaxCount        int   // of proposals without an outcome
	MaxBytes        int64 // of their entries
	ElectionTicks   int   // how many ticks without a leader a proposal with FailWithoutLeader waits
	Leadership      Leadership
	// Bound gives a context without a deadline the request timeout, with ErrTimeout as its cause.
	Bound     func(context.Context) (context.Context, context.CancelFunc)
	DiskFull  func() bool
	Lifecycle *lifecycle.Lifecycle
	Wakeup    lifecycle.Wakeup // of the raft loop
	Logger    *slog.Logger
}

// Leadership is what this member knows about the leader. Its methods are safe for concurrent use.
type Leadership interface {
	Term() uint64   // the newest term
	Leader() uint64 // raft.None if no leader is known
}

// proposal is an encoded command on its way to raft.
type proposal struct {
	id    uint64 // the key of its waiter, and the ID of the command in the entry
	entry *raftpb.Entry
	// repeatable means that the command may be proposed again in a later term, each time with that term as its
	// RequiredTerm. An attempt takes effect in its own term or never, so at most one of them does.
	repeatable bool
	// failWithoutLeader is FailsWithoutLeader of the client's context.
	failWithoutLeader bool
	// requiredTerm is the RequiredTerm of the entry if the proposal is repeatable, and else 0.
	requiredTerm uint64
}

// forTerm returns q with term as its required term, if q is repeatable. If q has another required term, the result has
// an entry of its own, because raft and the transport may still hold the entry of an earlier attempt.
func (q proposal) forTerm(term uint64) proposal {
	if q.repeatable && q.requiredTerm != term {
		q.entry, q.requiredTerm = &raftpb.Entry{Data: store.WithRequiredTerm(q.entry.GetData(), term)}, term
	}
	return q
}

// Pending holds this member's proposals from Submit until they have an outcome. Its methods are safe for
// concurrent use.
type Pending struct {
	cfg Config // immutable

	// submitted are proposals for the Queue. await deletes a proposal from it when its waiter has gone. The number of
	// waiters is bounded, so the mailbox is, too.
	submitted lifecycle.Mailbox[proposal]
	failed    atomic.Uint64 // proposals that ended with an error
	voided    atomic.Uint64 // attempts without effect; their commands were proposed again
	lastID    atomic.Uint64 // of the newest proposal

	// mu guards the waiters and their fields. Clients, the loop and the applier hold it for moments.
	mu struct {
		sync.Mutex
		waiters map[uint64]*waiter // by the proposal's ID
		bytes   int64              // of all waiters
	}
}

// NewPending returns a Pending without proposals.
func NewPending(cfg Config) *Pending {
	p := &Pending{cfg: cfg}
	p.submitted.Wakeup = cfg.Wakeup
	p.mu.waiters = make(map[uint64]*waiter)
	// IDs begin at random: entries from before a restart, or of another member, must not match a new proposal.
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	p.lastID.Store(binary.BigEndian.Uint64(seed[:]))
	return p
}

// NextID returns a new ID for a proposal. It is never 0, the ID of entries without a proposal, such as the
// empty one with which a leader begins its term.
func (p *Pending) NextID() uint64 {
	for {
		if id := p.lastID.Add(1); id != 0 {
			return id
		}
	}
}

// Submit replicates c, and returns the result of applying it. Result.Err is the error of the command itself. The
// returned error means that this member has no result: after ErrTooLarge, ErrTooManyRequests, ErrDiskFull and
// ErrNoLeader nothing was done; after ErrLeaderChanged, ErrTimeout, ErrStopped and ctx's error c may or may not take
// effect. Submit sets c.ID and, if c has no required term and may have one, c.RequiredTerm.
func (p *Pending) Submit(ctx context.Context, c *store.Command) (store.Result, error) {
	c.ID = p.NextID()
	q := proposal{id: c.ID, repeatable: c.MayRequireTerm()}
	if q.repeatable {
		c.RequiredTerm = p.cfg.Leadership.Term() // the Queue changes it if the term has changed by then
		q.requiredTerm = c.RequiredTerm
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

// SubmitChange is Submit for a configuration change with that proposal ID. It is proposed once.
func (p *Pending) SubmitChange(ctx context.Context, id uint64, entry *raftpb.Entry) (store.Result, error) {
	return p.await(ctx, proposal{id: id, entry: entry})
}

// await hands q to the loop and waits for its outcome. The waiter is always removed, either by the goroutine that
// sends the outcome or by this one.
func (p *Pending) await(ctx context.Context, q proposal) (_ store.Result, err error) {
	defer func() {
		if err != nil {
			p.failed.Add(1)
		}
	}()
	// With a full disk this member applies nothing. Without this check the client would wait for the request timeout,
	// and would not know whether its command takes effect.
	if p.cfg.DiskFull() {
		return store.Result{}, ErrDiskFull
	}
	q.failWithoutLeader = FailsWithoutLeader(ctx)
	ctx, cancel := p.cfg.Bound(ctx)
	defer cancel()
	w, err := p.add(q)
	if err != nil {
		return store.Result{}, err
	}
	p.submitted.Push(q)
	select {
	case o := <-w.done:
		return o.result, o.err
	case <-ctx.Done():
		if p.remove(q.id) == nil {
			// Another goroutine has just removed the waiter, and is about to send the outcome.
			o := <-w.done
			return o.result, o.err
		}
		// The proposal has no waiter any more, so MaxCount does not count it. If it stayed, the mailbox could grow
		// without bound while the loop is delayed.
		p.submitted.DeleteFirst(func(o proposal) bool { return o.id == q.id })
		return store.Result{}, p.timeoutError(ctx, w)
	case <-p.cfg.Lifecycle.Stopping():
		// There may be an outcome as well. ErrStopped is still correct: it does not say what became of the command.
		p.remove(q.id)
		return store.Result{}, lifecycle.ErrStopped
	}
}

// timeoutError returns the error of a proposal after ctx has ended. w was removed, so no other goroutine changes
// w.proposed any more, and no lock is needed to read it.
func (p *Pending) timeoutError(ctx context.Context, w *waiter) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case !w.proposed && p.cfg.Leadership.Leader() == raft.None:
		return ErrNoLeader
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	default:
		return ctx.Err()
	}
}

// Stats are counts since the start, and the present number and size of proposals without an outcome.
type Stats struct {
	Failed       uint64 // proposals that ended with an error other than the command's own
	Voided       uint64 // attempts without effect; their commands were proposed again
	Waiting      int
	WaitingBytes int64
}

// Stats returns the statistics of this member's proposals.
func (p *Pending) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Failed: p.failed.Load(), Voided: p.voided.Load(), Waiting: len(p.mu.waiters), WaitingBytes: p.mu.bytes}
}

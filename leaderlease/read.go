package leaderlease

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/core"
)

// Read returns once local state may answer a linearizable read. With a valid lease it uses the commit index,
// otherwise it waits for a renewal, or for a quorum round that all waiting reads share. It waits until Applied
// has reached the index. On a follower the index comes from the leader, which uses its own lease if it can.
//
// A failed read has had no effect and may be tried again. A Read that has no index yet fails with a
// *NoLeaseError as soon as no leader is known or leadership moves. Close fails every Read. If ctx ends first,
// the error matches that of ctx and says what the read waited for.
//
// With a valid lease and an up-to-date state machine Read takes no lock and allocates nothing.
func (l *Lease) Read(ctx context.Context) (ReadResult, error) {
	if l == nil {
		return ReadResult{}, errNoLibrary
	}
	if r, ok := l.readNow(); ok {
		return r, nil
	}
	return l.wait(ctx, &waiter{})
}

// ReadIndex is Read without the lease: it takes a quorum round even if the lease is valid, and relies on no
// clock. Its Path is PathReadIndex, or PathForwarded on a follower: the leader makes the round. If the
// leader's version answers such requests from its lease, ReadIndex fails with ErrLeaderTooOld.
func (l *Lease) ReadIndex(ctx context.Context) (ReadResult, error) {
	if l == nil {
		return ReadResult{}, errNoLibrary
	}
	return l.wait(ctx, &waiter{needsRound: true})
}

// wait starts w and waits for its end or ctx's.
func (l *Lease) wait(ctx context.Context, w *waiter) (ReadResult, error) {
	answer := make(chan answered, 1)
	w.done = func(r ReadResult, err error) { answer <- answered{r, err} }
	l.start(w)
	select {
	case a := <-answer:
		return a.read, a.err
	case <-ctx.Done():
		if mine, err := l.giveUp(w, ctx.Err()); mine {
			return ReadResult{}, err
		}
		return ReadResult{}, ctx.Err() // the answer came at the same moment
	}
}

// answered is the answer to a waiting read.
type answered struct {
	read ReadResult
	err  error
}

// ReadMode selects the method of StartRead. Both are linearizable.
type ReadMode uint8

const (
	// ReadModeLease is Read: a valid lease answers, and a quorum round without one.
	ReadModeLease ReadMode = iota
	// ReadModeQuorum is ReadIndex: a quorum round answers, and no clock is relied on.
	ReadModeQuorum
)

// StartRead is Read or ReadIndex for callers that must not block, such as the raft loop.
//
// done is called exactly once: before StartRead returns, within a later call of another method that ends the
// read, or in a goroutine of its own when ctx ends first. It must not block. It may call every method that does
// not block, except Ready. A ctx that never ends, such as context.Background(), costs nothing.
func (l *Lease) StartRead(ctx context.Context, mode ReadMode, done func(ReadResult, error)) {
	if l == nil {
		done(ReadResult{}, errNoLibrary)
		return
	}
	quorum := mode != ReadModeLease
	if !quorum {
		if r, ok := l.readNow(); ok {
			done(r, nil)
			return
		}
	}
	l.startUntil(ctx, &waiter{needsRound: quorum, done: done})
}

// readNow serves a read under a valid lease without waiting.
func (l *Lease) readNow() (ReadResult, bool) {
	v, now, s := l.check()
	if s != core.Valid {
		return ReadResult{}, false
	}
	index := l.commit.Load()
	if l.applied.Load() < index {
		return ReadResult{}, false
	}
	l.stats.paths.add(PathLease)
	return ReadResult{Index: index, Term: v.Term, Path: PathLease, Remaining: v.Remaining(now, l.cfg.Duration)}, true
}

// start lets a read that readNow has not served wait for the state machine, a renewal or a round.
func (l *Lease) start(w *waiter) {
	l.mu.Lock()
	done := l.startLocked(w)
	l.mu.Unlock()
	done.report()
}

func (l *Lease) startLocked(w *waiter) finished {
	mu := &l.mu
	now := l.nowLocked()
	v := l.view.Load()
	w.stats = &l.stats
	switch {
	case mu.closed:
		return finished{{w: w, err: l.noLeaseLocked(core.Closed)}}
	case mu.failReads:
		return finished{{w: w, err: l.noLeaseLocked(core.Disabled)}}
	case v.Check(now) == core.Valid && !w.needsRound:
		// The lock excludes a change of the view, and nowLocked a disruption.
		w.read = ReadResult{Term: mu.term, Path: PathLease, Remaining: v.Remaining(now, l.cfg.Duration)}
		return l.whenAppliedLocked(w, l.commit.Load())
	case mu.leader == raft.None:
		return finished{{w: w, err: l.noLeaseLocked(v.Check(now))}}
	}
	if mu.role == raft.StateLeader && mu.lease.HasOwnTermCommit() && !w.needsRound {
		w.at, w.commitAt = now, l.commit.Load()
	}
	mu.reads.add(w)
	if l.needsRoundLocked() {
		l.askLocked()
	}
	return nil
}

// whenAppliedLocked finishes w once the state machine has applied index.
func (l *Lease) whenAppliedLocked(w *waiter, index uint64) finished {
	w.read.Index = index
	// The follower that asked waits for its own state machine.
	if w.remote || l.applied.Load() >= index {
		return finished{{w: w}}
	}
	l.mu.reads.awaitingApplied.insert(w)
	return nil
}

// finishAppliedLocked finishes the reads in awaitingApplied with an applied index.
func (l *Lease) finishAppliedLocked() (done finished) {
	for _, w := range l.mu.reads.awaitingApplied.takeApplied(l.applied.Load()) {
		done = append(done, result{w: w})
	}
	return done
}

// finished are reads to report after the lock is released.
type finished []result

type result struct {
	w   *waiter
	err error
}

func (f finished) report() {
	for _, r := range f {
		r.w.finish(r.err)
	}
}

// TryRead reports whether a linearizable read may be served from local state now: if status is StatusValid, a
// state machine that has applied index may answer. It does not wait and has no fallback. With another status
// index is 0, and no read may be served.
//
// TryRead takes no lock and allocates nothing. A read that it admits writes to no shared memory. One call may
// serve a batch of requests, if all of them arrived before it. The read takes effect during the call. A later
// pause is harmless, but the value must be fetched after the call, never before.
func (l *Lease) TryRead() (index uint64, status Status) {
	if l == nil {
		return 0, core.Disabled
	}
	// The clock is read before the view is loaded, so a lease that is revoked in between is refused.
	now := l.clock.Now()
	v := l.view.Load()
	if v.Check(now) != core.Valid || l.disrupted(v) {
		if _, _, s := l.check(); s != core.Valid {
			return 0, s
		}
	}
	// The commit index may be newer than the view. That is harmless, since it stays committed.
	return l.commit.Load(), core.Valid
}

// disrupted reports whether the clock may have missed time since v was made.
func (l *Lease) disrupted(v *view) bool {
	return l.disruptable != nil && l.disruptable.Disruptions() != v.marker
}

// check is TryRead for callers that need the view and the reading, or the exact refusal.
func (l *Lease) check() (v *view, now core.Instant, s Status) {
	now = l.clock.Now()
	v = l.view.Load()
	if s = v.Check(now); s == core.ClockFault {
		// The view may be newer than the reading. If it is not, the clock is wrong.
		now = l.clock.Now()
		v = l.view.Load()
		s = v.Check(now)
	}
	if s == core.Valid && l.disrupted(v) {
		s = core.ClockFault
	}
	if s != core.Valid {
		l.stats.refused[s].Add(1)
	}
	return v, now, s
}

// Path is the way in which a read was served.
type Path uint8

const (
	// PathNone is the zero value: the read was not served.
	PathNone Path = iota
	// PathLease means that the lease was valid when the read arrived. The read may have waited for Applied.
	PathLease
	// PathJoined means that the lease was not valid when the read arrived at the leader. While the read waited, the
	// lease became valid, by a renewal for example, and now covers the moment of arrival.
	PathJoined
	// PathReadIndex means that raft made a quorum round on this leader.
	PathReadIndex
	// PathForwarded means that this follower served the read itself, at an index from its leader. Only the request
	// for the index was forwarded. The leader answered it from its lease or after a quorum round.
	PathForwarded

	numPaths = int(PathForwarded) + 1
)

var pathNames = [numPaths]string{"none", "lease", "joined", "read_index", "forwarded"}

// String returns the name used in metrics and kvnode's gRPC trailers.
func (p Path) String() string {
	if int(p) < numPaths {
		return pathNames[p]
	}
	return "unknown"
}

// ReadResult describes a read that local state may answer.
type ReadResult struct {
	// Index is the read index. The state machine has applied it.
	Index uint64
	// Term is the newest term that this node knew; on a leader, the term that it leads.
	Term uint64
	// Path says how the index was obtained.
	Path Path
	// Remaining is how long the lease was still usable when the read arrived; 0 unless Path is PathLease.
	Remaining time.Duration
}

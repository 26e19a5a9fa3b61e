package leaderlease

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/core"
)

// Read returns once local state may answer a linearizable read: under the lease
// if it is valid, else with the index of a quorum round that all waiting reads
// share, and after Applied has reached that index. On a follower the index
// comes from the leader, which answers from its own lease if it can.
//
// Nothing is done by a read that fails, so it may be tried again. It fails with a
// *NoLeaseError as soon as no leader is known or leadership moves, with StatusClosed after
// Close, and when ctx ends first with an error that matches ctx's and says what it was
// waiting for.
//
// With a valid lease and an up-to-date state machine it takes no lock and
// allocates nothing.
func (l *Lease) Read(ctx context.Context) (ReadResult, error) {
	if l == nil {
		return ReadResult{}, errNoLibrary
	}
	if r, ok := l.readNow(); ok {
		return r, nil
	}
	return l.wait(ctx, &waiter{})
}

// ReadIndex is Read without the lease: it takes a quorum round even if the
// lease is valid, for those who trust no clock with this one read, and for
// comparison. Its Path is PathReadIndex, or PathForwarded on a follower, whose
// leader makes the round. A leader of a version that does not know of such
// requests answers from its lease; then it fails with ErrLeaderTooOld.
func (l *Lease) ReadIndex(ctx context.Context) (ReadResult, error) {
	if l == nil {
		return ReadResult{}, errNoLibrary
	}
	return l.wait(ctx, &waiter{quorum: true})
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
		return ReadResult{}, ctx.Err() // it was about to be answered
	}
}

// answered is what a waiting read is told.
type answered struct {
	read ReadResult
	err  error
}

// ReadMode says what a read may rely on. In both modes it is linearizable.
type ReadMode uint8

const (
	// ReadModeLease is Read: a valid lease answers, and a quorum round without one.
	ReadModeLease ReadMode = iota
	// ReadModeQuorum is ReadIndex: a quorum round answers, and no clock is relied on.
	ReadModeQuorum
)

// StartRead is Read or ReadIndex for callers that must not block, such as the raft loop.
//
// done is called exactly once: before StartRead returns, from within a later call of another
// method that ends the read, or in a goroutine of its own when ctx ends first. It must not block.
// It may call every method that does not block, but not Ready. A ctx that never ends, such as
// context.Background(), costs nothing.
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
	l.startUntil(ctx, &waiter{quorum: quorum, done: done})
}

// readNow serves under a valid lease if nothing has to be waited for.
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

// start puts a read that cannot be served at once to wait for what it needs:
// the state machine, a renewal or a round.
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
	case mu.broken:
		return finished{{w: w, err: l.noLeaseLocked(core.Disabled)}}
	case v.Check(now) == core.Valid && !w.quorum:
		// mu excludes a change of the view, and nowLocked a disruption.
		w.read = ReadResult{Term: mu.term, Path: PathLease, Remaining: v.Remaining(now, l.cfg.Duration)}
		return l.whenAppliedLocked(w, l.commit.Load())
	case mu.leader == raft.None:
		return finished{{w: w, err: l.noLeaseLocked(v.Check(now))}}
	}
	if mu.role == raft.StateLeader && mu.lease.HasOwnTermCommit() && !w.quorum {
		w.at, w.index = now, l.commit.Load()
	}
	mu.reads.add(w)
	if l.overdueLocked() {
		l.askLocked()
	}
	return nil
}

// whenAppliedLocked lets w go on once the state machine has applied index.
func (l *Lease) whenAppliedLocked(w *waiter, index uint64) finished {
	w.read.Index = index
	// A follower that asked waits for its own state machine.
	if w.remote || l.applied.Load() >= index {
		return finished{{w: w}}
	}
	l.mu.reads.barriers.file(w)
	return nil
}

// barrierLocked lets the reads go whose index has been applied.
func (l *Lease) barrierLocked() (done finished) {
	for _, w := range l.mu.reads.barriers.reached(l.applied.Load()) {
		done = append(done, result{w: w})
	}
	return done
}

// finished are reads to report once the lock is free.
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

// TryRead reports whether a linearizable read may be served from local state
// now, and from which index on: a state machine that has applied index, or
// more, may answer. There is no waiting and no fallback; unless the status is
// StatusValid the index is 0 and nothing may be served.
//
// It takes no lock, allocates nothing and writes to no memory that other cores
// write. One call may serve a batch of requests, if all of them had arrived
// before it. The read takes effect during the call: pausing afterwards is
// harmless, but the value must be fetched after it, never before.
func (l *Lease) TryRead() (index uint64, status Status) {
	if l == nil {
		return 0, core.Disabled
	}
	// The clock is read before the view is loaded: a lease revoked in between
	// is refused.
	now := l.clock.Now()
	v := l.view.Load()
	if v.Check(now) != core.Valid || l.disrupted(v) {
		if _, _, s := l.check(); s != core.Valid {
			return 0, s
		}
	}
	// Newer than the view at worst, and a commit index never ceases to be one.
	return l.commit.Load(), core.Valid
}

// disrupted reports whether the clock may have missed time since v was made.
func (l *Lease) disrupted(v *view) bool {
	return l.disruptable != nil && l.disruptable.Disruptions() != v.marker
}

// check is TryRead for callers that want to know more, or to know why not.
func (l *Lease) check() (v *view, now core.Instant, s Status) {
	now = l.clock.Now()
	v = l.view.Load()
	if s = v.Check(now); s == core.ClockFault {
		// The view may be newer than the reading. If not, the clock is wrong.
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

// Path says how a read was served.
type Path uint8

const (
	// PathNone is the zero value: the read was not served.
	PathNone Path = iota
	// PathLease means at once, under a valid lease.
	PathLease
	// PathJoined means under the lease, once a renewal that covers the moment
	// of arrival had come back.
	PathJoined
	// PathReadIndex means after a quorum round that raft made on this leader.
	PathReadIndex
	// PathForwarded means with an index from the leader, on another node: by its
	// lease or by a round, which ReadIndex insists on.
	PathForwarded

	numPaths = int(PathForwarded) + 1
)

var pathNames = [numPaths]string{"none", "lease", "joined", "read_index", "forwarded"}

// String returns the name used in metrics and trailers.
func (p Path) String() string {
	if int(p) < numPaths {
		return pathNames[p]
	}
	return "unknown"
}

// ReadResult says how a read may be served. Local state has applied Index, so it may answer.
type ReadResult struct {
	// Index is the read index: the state machine has applied it, or more.
	Index uint64
	// Term is the newest term this node knew; of the reign, where it leads.
	Term uint64
	// Path says how the index was obtained.
	Path Path
	// Remaining is for how long the lease would have served further reads at
	// that moment; 0 unless Path is PathLease.
	Remaining time.Duration
}

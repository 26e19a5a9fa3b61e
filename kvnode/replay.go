package kvnode

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal"
)

// replayPatience is the number of election timeouts without a leader after which a member serves stale reads. With
// a smaller number, stale reads would lack the writes that were acknowledged last. With a larger one, a member
// without a quorum serves nothing for longer.
const replayPatience = 5

// replay makes stale (serializable) reads wait after a start. The store begins at a checkpoint, and the commit index
// on disk lags behind, so at first the store may be older than what this member served before.
//
// Stale reads first wait until the part of the log is applied that this member knows to be committed: up to the
// commit index, and if this member alone is a quorum there, up to the next configuration change. Then the member makes
// linearizable reads until one succeeds, until its whole log is applied, or until it has found no leader for
// replayPatience.
type replay struct {
	// Immutable.
	self          uint64
	commit, last  uint64 // of the log at the start
	patience      time.Duration
	patienceTicks int // patience in ticks
	log           *raftwal.Log
	store         *store.Store
	leadership    *leadership
	life          *lifecycle.Lifecycle
	logger        *slog.Logger

	// The applier owns the following fields once it runs.
	target        uint64 // the index that must be applied
	alone         bool   // this member alone is a quorum, so the log is committed up to target
	appliedClosed bool

	applied chan struct{} // closed when target is applied
	served  chan struct{} // closed when stale reads are served
}

// begin initializes the applier's fields, before the applier runs.
func (r *replay) begin() {
	r.applied, r.served = make(chan struct{}), make(chan struct{})
	r.target = r.commit
	r.entriesApplied()
}

// entriesApplied closes applied once enough is applied. The applier calls it after each change of the store.
func (r *replay) entriesApplied() {
	for !r.appliedClosed && r.store.Applied() >= r.target {
		// If this member alone is a quorum at the commit index, the rest of its log is committed, too.
		if r.alone || !slices.Equal(r.store.Members().Voters(), []uint64{r.self}) {
			r.appliedClosed = true
			close(r.applied)
			return
		}
		r.alone = true
		r.target = r.endAlone(r.target, r.last)
	}
}

// endAlone returns how far the log is committed if this member alone is a quorum at commit: up to the next
// configuration change, after which it may not be a quorum any more, else up to last.
func (r *replay) endAlone(commit, last uint64) uint64 {
	return cmp.Or(firstChange(r.log, commit+1, last+1), last)
}

// isOver reports whether stale reads are served.
func (r *replay) isOver() bool {
	select {
	case <-r.served:
		return true
	default:
		return false
	}
}

// run closes served when stale reads may be served. read makes a linearizable read. silence returns for how many
// ticks this member has not heard the leader.
func (r *replay) run(read func(context.Context) error, silence func() int) {
	select {
	case <-r.applied:
	case <-r.life.Stopping():
		return
	}
	for {
		before := r.leadership.current.Load()
		if !r.mustWait(before, r.askLeader(read), silence) {
			break
		}
		r.logger.Warn("stale reads wait until this member has applied what the leader has committed",
			"applied", r.store.Applied(), "last_at_start", r.last)
	}
	if !r.life.IsStopping() {
		close(r.served)
	}
}

// askLeader makes a linearizable read. If that fails, askLeader returns only after patience, even if the read was
// refused at once.
func (r *replay) askLeader(read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.patience)
	defer cancel()
	err := read(ctx)
	if err != nil {
		select {
		case <-ctx.Done():
		case <-r.life.Stopping():
		}
	}
	return err
}

// mustWait reports whether stale reads must still wait after a linearizable read that returned err. before is the
// leader when the read began.
//
// If there is a leader, this member will apply or replace the entries that its log had at the start, which may
// contain what it acknowledged last. Stale reads wait for that even if it takes long, for example because a
// snapshot comes first. If the leader has changed meanwhile, there may be one again soon. If there was no leader
// all the time, the wait would have no bound, so the member serves what it has. A learner never forgets its last
// leader, because raft does not let it campaign. So a leader counts only if this member has heard it.
func (r *replay) mustWait(before *leader, err error, silence func() int) bool {
	if err == nil || r.life.IsStopping() || r.store.Applied() >= r.last {
		return false
	}
	switch {
	case r.leadership.current.Load() != before, before.id == r.self:
		return true
	case before.id != raft.None && silence() <= r.patienceTicks:
		return true
	}
	r.logger.Warn("finds no leader; stale reads may lack what was acknowledged last", "error", err)
	return false
}

// changesPage is the number of bytes that firstChange reads from the log at a time.
const changesPage = 1 << 20

// firstChange returns the index of the first configuration change among the entries of a log from lo to hi, hi
// excluded. It returns 0 if there is none, or if the log cannot be read, which raft will report.
func firstChange(log *raftwal.Log, lo, hi uint64) uint64 {
	for lo < hi {
		entries, err := log.Entries(lo, hi, changesPage)
		if err != nil || len(entries) == 0 {
			return 0
		}
		if i := slices.IndexFunc(entries, membership.IsConfChange); i >= 0 {
			return entries[i].GetIndex()
		}
		lo += uint64(len(entries))
	}
	return 0
}

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

// replayPatience is the number of election timeouts in a row without a leader after which a member serves stale
// reads, once it has applied all that its log says is committed. It exceeds an election after all members were
// killed: with a smaller number stale reads would miss writes that were acknowledged last. A member without a
// quorum serves nothing for that long.
const replayPatience = 5

// replay makes stale reads wait after a start, because the store may be older than what this member served
// before: it begins at a checkpoint, and the commit index on disk lags behind.
//
// If this member alone is a quorum, its whole log is committed, and stale reads wait until all of it is
// applied. Otherwise the member cannot know what was committed. It asks the leader, as for a linearizable
// read, and serves stale reads without an answer only if it finds no leader for long enough.
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
	until uint64 // the index that must be applied
	alone bool   // the log is committed up to until, because this member alone is a quorum
	over  bool   // applied is closed

	applied chan struct{} // closed when until is applied
	served  chan struct{} // closed when stale reads are served
}

// begin completes a replay, before the applier runs.
func (r *replay) begin() {
	r.applied, r.served = make(chan struct{}), make(chan struct{})
	r.until = r.commit
	r.entriesApplied()
}

// entriesApplied closes applied once enough is applied. The applier calls it after each change of the
// store. The configuration as of the commit index says whether the rest of the log is committed, too.
func (r *replay) entriesApplied() {
	for !r.over && r.store.Applied() >= r.until {
		if r.alone || !slices.Equal(r.store.Members().Voters(), []uint64{r.self}) {
			r.over = true
			close(r.applied)
			return
		}
		r.alone = true
		r.until = r.ownEntries(r.until, r.last)
	}
}

// ownEntries returns the index up to which the log after commit belongs to a configuration in which this
// member alone is a quorum: last, or the first change of the configuration.
func (r *replay) ownEntries(commit, last uint64) uint64 {
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

// run closes served when stale reads may be served. read makes a linearizable read, and silence returns for
// how many ticks this member has not heard the leader.
func (r *replay) run(read func(context.Context) error, silence func() int) {
	select {
	case <-r.applied:
	case <-r.life.Stopping():
		return
	}
	for {
		since := r.leadership.current.Load()
		if !r.mustWait(since, r.askLeader(read), silence) {
			break
		}
		r.logger.Warn("stale reads still wait, since the start, until what the leader has committed is applied",
			"applied", r.store.Applied(), "found", r.last)
	}
	if !r.life.IsStopping() {
		close(r.served)
	}
}

// askLeader makes a linearizable read. If it fails, askLeader returns when patience has run out, even if
// the read was refused at once.
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

// mustWait reports whether stale reads go on waiting after a linearizable read failed with err. since is
// the leader when that read began.
//
// With a leader, entries that this member had in its log at the start will be applied or replaced, and may
// be what it acknowledged last. That may take long: a snapshot of many gigabytes arrives first, or a full
// disk must be cleared. A leader that was there for a part of the time may come back. Without one for all
// of the time there is no bound, so the member serves what it has. A learner never forgets the last leader,
// since raft does not let it look for another one, so the silence of that leader counts.
func (r *replay) mustWait(since *leader, err error, silence func() int) bool {
	if err == nil || r.life.IsStopping() || r.store.Applied() >= r.last {
		return false
	}
	switch {
	case r.leadership.current.Load() != since, since.id == r.self:
		return true
	case since.id != raft.None && silence() <= r.patienceTicks:
		return true
	}
	r.logger.Warn("finds no leader; stale reads may lack what was acknowledged last", "error", err)
	return false
}

// changesPage is the size of log that firstChange reads at a time.
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

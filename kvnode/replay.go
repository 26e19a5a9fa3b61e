package kvnode

import (
	"cmp"
	"context"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/raftwal"
)

// replayPatience is for how many election timeouts on end a member that has applied what
// its log says is committed finds no leader before it serves stale reads. Shorter: an
// election after all were killed takes longer, and what the last of them acknowledged
// is not seen. Longer: a member that is left alone serves nothing for so long.
const replayPatience = 5

// replay keeps stale reads waiting after a start, for what is applied then is older
// than what was served, and acknowledged, before: the store begins at a checkpoint, and
// the commit index on disk lags behind. A member that is alone a quorum had all of its
// log committed, and waits for that however long it takes. One of several cannot know
// by itself what was; it asks the leader, as for a linearizable read, and serves what
// it has if it finds none in time. It waits as long as there is one.
type replay struct {
	*parts
	// The applier only, once it runs.
	until uint64 // what must be applied
	alone bool   // until is of a log that is committed whole
	over  bool

	applied chan struct{} // closed when until is applied
	served  chan struct{} // closed when stale reads may be
}

// begin is called before the applier runs.
func (r *replay) begin() {
	r.until = r.atStart.Commit
	r.look()
}

// look is asked whenever something was applied. The configuration as of the commit
// index says whether the rest of the log is committed, too.
func (r *replay) look() {
	for !r.over && r.store.Applied() >= r.until {
		if r.alone || !slices.Equal(r.store.Members().Voters(), []uint64{r.ID()}) {
			r.over = true
			close(r.applied)
			return
		}
		r.alone = true
		r.until = r.ownEntries(r.until, r.atStart.Last)
	}
}

// ownEntries returns how much of the log behind commit up to last is of a configuration
// in which this member alone is a quorum: all, or up to the first change of it.
func (r *replay) ownEntries(commit, last uint64) uint64 {
	return cmp.Or(firstChange(r.wal, commit+1, last+1), last)
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

// catchUp lets stale reads in.
func (o *reads) catchUp() {
	select {
	case <-o.replay.applied:
	case <-o.life.Stopping():
		return
	}
	for {
		since := o.leadership.current.Load()
		if !o.mayLack(since, o.askLeader()) {
			break
		}
		o.log.Warn("stale reads still wait, since the start, until what the leader has committed is applied",
			"applied", o.store.Applied(), "found", o.atStart.Last)
	}
	if !o.life.IsStopping() {
		close(o.replay.served)
	}
}

// askLeader reads once, as of what the leader has committed. If it fails it has taken
// all its time, also where the read was refused at once.
func (o *reads) askLeader() error {
	ctx, cancel := context.WithTimeout(context.Background(), replayPatience*o.cfg.ElectionTimeout)
	defer cancel()
	_, err := o.Read(ctx, ReadLease)
	if err != nil {
		select {
		case <-ctx.Done():
		case <-o.life.Stopping():
		}
	}
	return err
}

// mayLack reports whether stale reads are to go on waiting after one that ended with
// err, and began when there was the leader since, or none. While there is a leader, what
// is behind the commit index in the log that this member began with may be what it
// acknowledged last, and will be applied or replaced: a snapshot of many gigabytes is
// received first, or a full disk is given room. One that was there meanwhile may come
// back. Without one all the time nobody knows for how long that would be. A learner knows
// the last leader for ever, since raft never has it look for another one.
func (o *reads) mayLack(since *leader, err error) bool {
	if err == nil || o.life.IsStopping() || o.store.Applied() >= o.atStart.Last {
		return false
	}
	switch {
	case o.leadership.current.Load() != since, since.id == o.ID():
		return true
	case since.id != raft.None && o.silence() <= replayPatience*o.cfg.electionTicks():
		return true
	}
	o.log.Warn("finds no leader; stale reads may lack what was acknowledged last", "error", err)
	return false
}

// silence is for how many ticks the leader has not been heard, 0 if this member stops.
func (o *reads) silence() int {
	ticks, _ := ask(context.Background(), &o.calls, func(l *raftLoop) int { return l.detector.Silence() })
	return ticks
}

// changesPage is how much of the log is looked at together.
const changesPage = 1 << 20

// firstChange returns the index of the first change of membership among the entries of a log
// from lo up to hi, 0 if there is none, or the log cannot be read, which raft will say.
func firstChange(log *raftwal.Log, lo, hi uint64) uint64 {
	for lo < hi {
		entries, err := log.Entries(lo, hi, changesPage)
		if err != nil || len(entries) == 0 {
			return 0
		}
		if i := slices.IndexFunc(entries, confchange.Is); i >= 0 {
			return entries[i].GetIndex()
		}
		lo += uint64(len(entries))
	}
	return 0
}

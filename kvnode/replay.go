package kvnode

import (
	"context"
	"slices"

	"go.etcd.io/raft/v3"
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
	// The applier only, once it runs.
	until uint64 // what must be applied
	alone bool   // until is of a log that is committed whole
	over  bool

	applied chan struct{} // closed when until is applied
	served  chan struct{} // closed when stale reads may be
}

func (r *replay) init() { r.applied, r.served = make(chan struct{}), make(chan struct{}) }

// begin is called before the applier runs.
func (r *replay) begin(n *Node) {
	r.until = n.atStart.Commit
	r.look(n)
}

// look is asked whenever something was applied. The configuration as of the commit
// index says whether the rest of the log is committed, too.
func (r *replay) look(n *Node) {
	for !r.over && n.store.Applied() >= r.until {
		if r.alone || !slices.Equal(n.store.Members().Voters(), []uint64{n.ID()}) {
			r.over = true
			close(r.applied)
			return
		}
		r.alone = true
		r.until = n.ownEntries(r.until, n.atStart.Last)
	}
}

// ownEntries returns how much of the log behind commit up to last is of a configuration
// in which this member alone is a quorum: all, or up to the first change of it.
func (n *Node) ownEntries(commit, last uint64) uint64 {
	for at := commit; at < last; {
		entries, err := n.wal.Entries(at+1, last+1, changesPage)
		if err != nil || len(entries) == 0 {
			return last // raft will say what is wrong
		}
		for _, e := range entries {
			if at = e.GetIndex(); isConfChange(e) {
				return at
			}
		}
	}
	return last
}

// catchUp lets stale reads in.
func (n *Node) catchUp() {
	select {
	case <-n.replay.applied:
	case <-n.stopping:
		return
	}
	for {
		since := n.leader.Load()
		if !n.mayLack(since, n.askLeader()) {
			break
		}
		n.log.Warn("stale reads still wait, since the start, until what the leader has committed is applied",
			"applied", n.store.Applied(), "found", n.atStart.Last)
	}
	if n.isStopping() {
		return
	}
	close(n.replay.served)
	n.adviseAllMoved()
}

// askLeader reads once, as of what the leader has committed. If it fails it has taken
// all its time, also where the read was refused at once.
func (n *Node) askLeader() error {
	ctx, cancel := context.WithTimeout(context.Background(), replayPatience*n.cfg.ElectionTimeout)
	defer cancel()
	_, err := n.Read(ctx, ReadLease)
	if err != nil {
		select {
		case <-ctx.Done():
		case <-n.stopping:
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
func (n *Node) mayLack(since *leadership, err error) bool {
	if err == nil || n.isStopping() || n.store.Applied() >= n.atStart.Last {
		return false
	}
	switch {
	case n.leader.Load() != since, since.id == n.ID():
		return true
	case since.id != raft.None && n.silence() <= replayPatience*n.cfg.electionTicks():
		return true
	}
	n.log.Warn("finds no leader; stale reads may lack what was acknowledged last", "error", err)
	return false
}

// silence is for how many ticks the leader has not been heard, 0 if this member stops.
func (n *Node) silence() int {
	var ticks int
	if !n.call(func() { ticks = n.loop.admission.Silence() }) {
		return 0
	}
	return ticks
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

// awaitReplay returns once a stale read may be served. It takes no lock then.
func (n *Node) awaitReplay(ctx context.Context) error {
	if n.replay.isOver() {
		return nil
	}
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	select {
	case <-n.replay.served:
		return nil
	case <-n.stopping:
		return ErrStopped
	case <-ctx.Done():
		return n.readError(ctx, ctx.Err())
	}
}

package raftsim

import (
	"errors"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// disk is what a member keeps across crashes, and the writes that are under way.
type disk struct {
	n *node
	// log is what is durable, and what raft reads: it learns of a write when that
	// is done.
	log  *raft.MemoryStorage
	hard hardState // durable
	// held is the newest commit index handed over. One that came alone is not
	// worth a write: it becomes durable with the next write that is.
	held uint64

	queue   []*write
	working bool
	// answers are responses whose writes are durable, in order.
	answers      [][]*raftpb.Message
	stalledUntil time.Duration
}

// hardState is raftpb.HardState as a value.
type hardState struct{ term, vote, commit uint64 }

// write is a MsgStorageAppend, or a flush of the commit index with what waits
// for it.
type write struct {
	m     *raftpb.Message
	flush uint64
	done  func()
}

func newDisk(n *node) *disk { return &disk{n: n, log: raft.NewMemoryStorage()} }

// found makes the disk that of a founder: a snapshot at index 1, as raft
// recommends.
func (d *disk) found(conf *raftpb.ConfState) {
	must(d.log.ApplySnapshot(&raftpb.Snapshot{
		Data:     encodeChain(foundingChain),
		Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf},
	}))
	d.hard = hardState{term: 1, commit: 1}
	d.held = 1
}

func (d *disk) push(w *write) {
	d.queue = append(d.queue, w)
	d.work()
}

// work writes some of the queue as one batch, unless a batch is under way.
func (d *disk) work() {
	if d.working || len(d.queue) == 0 {
		return
	}
	d.working = true
	batch := 1 + d.n.s.rng.IntN(len(d.queue))
	d.n.later(d.delay(batch), func() { d.finish(batch) })
}

// delay is how long a batch takes; one that writes nothing takes no time.
func (d *disk) delay(batch int) time.Duration {
	if slices.ContainsFunc(d.queue[:batch], d.worth) {
		return soon(d.n.s.rng, d.n.s.w.disk)
	}
	return 0
}

func (d *disk) finish(batch int) {
	if wait := d.stalledUntil - d.n.s.now; wait > 0 {
		d.n.later(wait, func() { d.finish(batch) })
		return
	}
	done := d.queue[:batch]
	d.queue = append([]*write(nil), d.queue[batch:]...)
	d.working = false
	for _, w := range done {
		d.persist(w)
	}
	for _, w := range done {
		d.n.written(w)
	}
	d.work()
}

// worth reports whether a write is more than a commit index that came alone.
func (d *disk) worth(w *write) bool {
	m := w.m
	return m == nil || len(m.GetEntries()) > 0 || !raft.IsEmptySnap(m.GetSnapshot()) ||
		m.GetTerm() != 0 && (m.GetTerm() != d.hard.term || m.GetVote() != d.hard.vote)
}

// persist makes w durable, all of it at once.
func (d *disk) persist(w *write) {
	d.held = max(d.held, w.flush)
	if w.m == nil {
		d.hard.commit = d.held
		return
	}
	written := d.worth(w)
	if snap := w.m.GetSnapshot(); !raft.IsEmptySnap(snap) {
		d.install(snap)
	}
	must(d.log.Append(w.m.GetEntries()))
	if w.m.GetTerm() != 0 {
		d.hard.term, d.hard.vote = w.m.GetTerm(), w.m.GetVote()
		d.held = max(d.held, w.m.GetCommit())
	}
	if written {
		d.hard.commit = d.held
		d.n.s.trace.mix(uint64(d.n.s.now), d.n.id, d.hard.term, d.hard.vote, d.hard.commit, d.last())
		d.n.s.note(d.n, "durable: term %d vote %d commit %d last %d", d.hard.term, d.hard.vote, d.hard.commit, d.last())
	}
}

func (d *disk) install(snap *raftpb.Snapshot) {
	if err := d.log.ApplySnapshot(snap); errors.Is(err, raft.ErrSnapOutOfDate) {
		return
	}
	d.held = max(d.held, snap.GetMetadata().GetIndex())
	d.n.s.res.Count.Snapshots++
}

// crash loses what is not durable, but for the first few writes under way, which
// may have reached the disk although nobody has heard of it.
func (d *disk) crash() {
	if len(d.queue) > 0 && chance(d.n.s.rng, 0.3) {
		kept := d.n.s.rng.IntN(len(d.queue) + 1)
		d.n.s.res.Count.UnsyncedKept += kept
		for _, w := range d.queue[:kept] {
			d.persist(w)
		}
	}
	d.queue, d.answers, d.working = nil, nil, false
	d.held = d.hard.commit
}

// checkpoint makes snap the newest one, and cuts the log off after to.
func (d *disk) checkpoint(snap *raftpb.Snapshot, to uint64) {
	meta := snap.GetMetadata()
	if _, err := d.log.CreateSnapshot(meta.GetIndex(), meta.GetConfState(), snap.GetData()); err != nil {
		return // a snapshot from the leader was faster
	}
	// Raft refuses to start if less is committed than applied.
	d.hard.commit = max(d.hard.commit, meta.GetIndex())
	d.held = max(d.held, d.hard.commit)
	first, err := d.log.FirstIndex()
	must(err)
	if to >= first {
		must(d.log.Compact(to))
		d.n.s.res.Count.Compacted += int(to - first + 1)
	}
}

func (d *disk) last() uint64 {
	last, err := d.log.LastIndex()
	must(err)
	return last
}

// has reports whether the entry of that index and term is durable. What is
// compacted was committed.
func (d *disk) has(index, term uint64) bool {
	have, err := d.log.Term(index)
	return errors.Is(err, raft.ErrCompacted) || err == nil && have == term
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

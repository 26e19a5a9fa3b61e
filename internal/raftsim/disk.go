package raftsim

import (
	"errors"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// diskKind says what a crash can lose, as in package leasetest.
type diskKind uint8

const (
	// separateFiles has entries and hard state in files of their own, and syncs the
	// latter when raft.MustSync asks for it.
	separateFiles diskKind = iota
	// oneLog syncs all that was written before.
	oneLog
	// atomicBatches is oneLog, and leaves all of a write or nothing.
	atomicBatches
)

// disk is the durable state of a member, and the writes under way.
type disk struct {
	n    *node
	kind diskKind
	// tearNext, if not nil, runs when the process has died within the next write of two
	// changes of configuration.
	tearNext func()
	// log is durable, and raft reads it. A write changes it when the write is done.
	log  *raft.MemoryStorage
	hard hardState // durable
	// held is the newest commit index written. One that came alone is not synced: in
	// one log it becomes durable with the next write that is.
	held uint64

	queue   []*write
	working bool
	// answers are the responses of durable writes, in order.
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

func newDisk(n *node) *disk {
	return &disk{n: n, kind: n.s.w.diskKind(n.s.torn), log: raft.NewMemoryStorage()}
}

// bootstrap writes a snapshot at index 1, as raft recommends.
func (d *disk) bootstrap(conf *raftpb.ConfState) {
	must(d.log.ApplySnapshot(&raftpb.Snapshot{
		Data:     encodeChain(initialChain),
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
		if d.tearNext != nil && severalChanges(w.m) {
			d.dieIn(w)
			return
		}
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
		if w.flush > 0 || d.kind != separateFiles {
			d.hard.commit = d.held
		}
		return
	}
	written := d.worth(w)
	d.persistLog(w.m.GetSnapshot(), w.m.GetEntries())
	synced := written && d.kind != separateFiles
	if w.m.GetTerm() != 0 {
		synced = written
		d.hard.term, d.hard.vote = w.m.GetTerm(), w.m.GetVote()
		d.held = max(d.held, w.m.GetCommit())
	}
	if synced {
		d.hard.commit = d.held
	}
	if written {
		d.noteDurable("durable")
	}
}

// persistLog writes what comes before the hard state.
func (d *disk) persistLog(snap *raftpb.Snapshot, entries []*raftpb.Entry) {
	if !raft.IsEmptySnap(snap) {
		d.install(snap)
	}
	must(d.log.Append(entries))
}

// tear is persist for a process that dies after the first entries, before the hard state.
func (d *disk) tear(w *write, first int) {
	if w.m == nil || d.kind == atomicBatches {
		return
	}
	entries := w.m.GetEntries()
	d.persistLog(w.m.GetSnapshot(), entries[:min(first, len(entries))])
	if d.kind == oneLog {
		d.hard.commit = d.held
	}
	if min(first, len(entries)) > 0 && w.m.GetTerm() != 0 {
		d.n.s.res.Count.Torn++
	}
	d.noteDurable("durable, and the rest of a write is torn off")
}

func (d *disk) noteDurable(what string) {
	d.n.s.trace.mix(uint64(d.n.s.now), d.n.id, d.hard.term, d.hard.vote, d.hard.commit, d.last())
	d.n.s.note(d.n, "%s: term %d vote %d commit %d last %d", what, d.hard.term, d.hard.vote, d.hard.commit, d.last())
}

// dieIn ends the process within w.
func (d *disk) dieIn(w *write) {
	died := d.tearNext
	d.queue = nil
	d.tear(w, math.MaxInt)
	d.n.crash()
	died()
}

// severalChanges reports whether m has two changes of configuration and a hard state.
func severalChanges(m *raftpb.Message) bool {
	changes := 0
	for _, e := range m.GetEntries() {
		if e.GetType() != raftpb.EntryNormal {
			changes++
		}
	}
	return changes > 1 && m.GetTerm() != 0
}

func (d *disk) install(snap *raftpb.Snapshot) {
	if err := d.log.ApplySnapshot(snap); errors.Is(err, raft.ErrSnapOutOfDate) {
		return
	}
	d.held = max(d.held, snap.GetMetadata().GetIndex())
	d.n.s.res.Count.Snapshots++
}

// crash loses the writes under way. The first few of them may have reached the disk, and the
// next one may be torn.
func (d *disk) crash() {
	kept := 0
	if len(d.queue) > 0 && chance(d.n.s.rng, 0.3) {
		kept = d.n.s.rng.IntN(len(d.queue) + 1)
		d.n.s.res.Count.UnsyncedKept += kept
		for _, w := range d.queue[:kept] {
			d.persist(w)
		}
	}
	if kept < len(d.queue) && chance(d.n.s.torn, d.n.s.w.tears) {
		d.tear(d.queue[kept], pick(d.n.s.torn, 0, 1, 2, math.MaxInt, math.MaxInt))
	}
	d.queue, d.answers, d.working, d.tearNext = nil, nil, false, nil
	// Entries before the first one are committed. Raft does not start with less.
	first, err := d.log.FirstIndex()
	must(err)
	d.hard.commit = max(d.hard.commit, first-1)
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

// storage is a disk as raft reads it.
type storage struct {
	*raft.MemoryStorage
	n *node
}

// InitialState implements raft.Storage.
func (s storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	_, conf, err := s.MemoryStorage.InitialState()
	h := s.n.disk.hard
	if h == (hardState{}) {
		return nil, conf, err
	}
	return &raftpb.HardState{Term: new(h.term), Vote: new(h.vote), Commit: new(h.commit)}, conf, err
}

// Snapshot implements raft.Storage: what a leader sends is the present state of
// its machine, not its last checkpoint.
func (s storage) Snapshot() (*raftpb.Snapshot, error) {
	p := s.n.p
	term, err := s.Term(p.machine.applied)
	if err != nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return p.machine.snapshot(term), nil
}

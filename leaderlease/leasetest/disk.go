package leasetest

import (
	"errors"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/internal/hook"
)

// Disk is a node's durable storage: raft.Storage plus the writes. When a method has
// returned, its data is durable; a crash loses the rest.
// Only a hard state that raft.MustSync does not ask to sync, because its commit
// index alone is new, may stay volatile. If there is a method Flush() error, it
// makes that commit index durable.
//
// A crash within Save may leave a part of it behind. A disk on which that is
// possible has a method SaveTorn, see tornDisk.
type Disk interface {
	raft.Storage
	// Save appends entries, and replaces the hard state and the snapshot where
	// they are not empty.
	Save(entries []*raftpb.Entry, hard *raftpb.HardState, snap *raftpb.Snapshot) error
	// Compact makes snap the beginning of the log, keeping entries after it.
	Compact(snap *raftpb.Snapshot) error
	// Reopen is called after a crash and returns the disk as a new process
	// finds it.
	Reopen() (Disk, error)
	// LoadLongestPromise and SaveLongestPromise implement leaderlease.PromiseStore.
	LoadLongestPromise() (time.Duration, error)
	SaveLongestPromise(d time.Duration) error
}

// promises is the PromiseStore of a node. A save takes as long as a write of its disk.
type promises struct {
	Disk
	n *Node
}

// Run implements hook.Saver.
func (p promises) Run(save hook.Save) { p.n.later(delay(p.n.Options.DiskDelay), save) }

// tornDisk is a Disk on which a crash can come between the entries and the hard state of one
// Ready, which are written in that order. SaveTorn writes the remains of such a crash, and reports
// whether it can happen on this disk.
type tornDisk interface {
	SaveTorn(entries []*raftpb.Entry, snap *raftpb.Snapshot) bool
}

// DiskKind says what data of an in-memory disk a crash can lose.
type DiskKind uint8

const (
	// SeparateFiles keeps entries and hard state in files of their own, and does
	// not more than raft's documentation asks for: a crash can come between the
	// two, and a commit index is durable only if it came in a hard state that
	// raft.MustSync asks to sync.
	SeparateFiles DiskKind = iota
	// OneLog writes entries and hard states to one file, as etcd's WAL does. A
	// crash can come between the two, and each sync makes the commit indexes
	// durable that were written before.
	OneLog
	// AtomicBatches is OneLog with a Ready as one record, as in raftwal: a crash
	// leaves all of it or nothing.
	AtomicBatches
)

// memoryDisk is a Disk on raft's MemoryStorage, from which the process reads.
type memoryDisk struct {
	*raft.MemoryStorage
	kind DiskKind
	// maxPromise is the value that a process reads, saved the value that survives a power
	// failure.
	maxPromise, saved time.Duration
	// durable is the hard state that outlives a crash.
	durable *raftpb.HardState
}

// NewMemoryDisk returns the empty disk, of the kind SeparateFiles, of a member of
// the configuration conf. It is bootstrapped the way raft recommends: a snapshot
// at index 1.
func NewMemoryDisk(conf *raftpb.ConfState) Disk { return SeparateFiles.NewDisk(conf) }

// NewDisk is NewMemoryDisk for disks of any kind.
func (k DiskKind) NewDisk(conf *raftpb.ConfState) Disk {
	d := &memoryDisk{MemoryStorage: raft.NewMemoryStorage(), kind: k, durable: &raftpb.HardState{}}
	if conf != nil {
		snap := &raftpb.Snapshot{
			Data:     (&memoryMachine{}).encode(),
			Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf},
		}
		must(d.ApplySnapshot(snap))
	}
	return d
}

// Save implements Disk.
func (d *memoryDisk) Save(entries []*raftpb.Entry, hard *raftpb.HardState, snap *raftpb.Snapshot) error {
	if err := d.saveLog(entries, snap); err != nil {
		return err
	}
	synced := len(entries) > 0 || !raft.IsEmptySnap(snap)
	if !raft.IsEmptyHardState(hard) {
		must(d.SetHardState(hard))
		if raft.MustSync(hard, d.durable, len(entries)) {
			d.durable, synced = hard, true
		}
	}
	if synced && d.kind != SeparateFiles {
		return d.Flush()
	}
	return nil
}

// saveLog writes the parts of a Ready before its hard state.
func (d *memoryDisk) saveLog(entries []*raftpb.Entry, snap *raftpb.Snapshot) error {
	if !raft.IsEmptySnap(snap) {
		// An older one than the log already begins with is no news.
		if err := d.ApplySnapshot(snap); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
			return err
		}
	}
	return d.Append(entries)
}

// SaveTorn implements tornDisk. In one log the hard states before are durable.
func (d *memoryDisk) SaveTorn(entries []*raftpb.Entry, snap *raftpb.Snapshot) bool {
	if d.kind == AtomicBatches {
		return false
	}
	must(d.saveLog(entries, snap))
	if d.kind == OneLog {
		must(d.Flush())
	}
	return true
}

// Flush makes the newest hard state durable.
func (d *memoryDisk) Flush() error {
	d.durable = d.hardState()
	return nil
}

func (d *memoryDisk) hardState() *raftpb.HardState {
	hard, _, err := d.InitialState()
	must(err)
	return hard
}

// Compact implements Disk.
func (d *memoryDisk) Compact(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	must(d.SetHardState(committedTo(d.hardState(), index)))
	if d.kind != SeparateFiles {
		must(d.Flush())
	}
	if _, err := d.CreateSnapshot(index, snap.GetMetadata().GetConfState(), snap.GetData()); err != nil {
		return err
	}
	return d.MemoryStorage.Compact(index)
}

// Reopen implements Disk.
func (d *memoryDisk) Reopen() (Disk, error) {
	first, err := d.FirstIndex()
	if err != nil {
		return nil, err
	}
	d.durable = committedTo(d.durable, first-1)
	must(d.SetHardState(d.durable))
	return d, nil
}

// committedTo returns hard with a commit index of at least index. The entries before the
// first one of the log are committed, and raft does not start with a lower commit index. A
// hard state that was never written stays empty.
func committedTo(hard *raftpb.HardState, index uint64) *raftpb.HardState {
	if raft.IsEmptyHardState(hard) || hard.GetCommit() >= index {
		return hard
	}
	return &raftpb.HardState{Term: new(hard.GetTerm()), Vote: new(hard.GetVote()), Commit: new(index)}
}

// LoadLongestPromise implements Disk.
func (d *memoryDisk) LoadLongestPromise() (time.Duration, error) { return d.maxPromise, nil }

// SaveLongestPromise implements Disk.
func (d *memoryDisk) SaveLongestPromise(longest time.Duration) error {
	d.maxPromise, d.saved = longest, longest
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// write is one write to the disk.
type write struct {
	entries []*raftpb.Entry
	hard    *raftpb.HardState
	snap    *raftpb.Snapshot
}

// save makes w durable. It fails if the machine cannot be restored; then the
// process cannot go on, since raft has the snapshot already.
func (n *Node) save(w write) error {
	if err := n.install(w.snap); err != nil {
		return err
	}
	must(n.disk.Save(w.entries, w.hard, n.forLog(w.snap)))
	return nil
}

// saveTorn writes w without its hard state, as a crash within Save may leave it.
func (n *Node) saveTorn(w write) {
	d, ok := n.disk.(tornDisk)
	if !ok || n.install(w.snap) != nil {
		return
	}
	if d.SaveTorn(w.entries, n.forLog(w.snap)) && !raft.IsEmptyHardState(w.hard) && len(w.entries) > 0 {
		n.losses.torn++
	}
}

// losses counts and schedules losses of data in crashes.
type losses struct {
	// tears is a crash within a later write, if its match is set. torn counts the crashes
	// that have kept the entries of a Ready without its hard state.
	tears tear
	torn  int
	// recovered is the commit index that the log proved at the start, if the hard state
	// had a lower one, else 0.
	recovered uint64
}

// tear is a crash between the entries and the hard state of a later write.
type tear struct {
	match   func([]*raftpb.Entry) bool
	crashed func()
}

// tearsIn reports whether w is the write in which the process is to die.
func (n *Node) tearsIn(w write) bool {
	return n.losses.tears.match != nil && len(w.entries) > 0 && !raft.IsEmptyHardState(w.hard) && n.losses.tears.match(w.entries)
}

// startWrite makes w durable after the disk's delay and then runs done, on the
// node's goroutine.
func (n *Node) startWrite(w write, done func()) {
	finish := func() {
		if n.tearsIn(w) {
			crashed := n.losses.tears.crashed
			n.CrashTorn(0, len(w.entries))
			crashed()
			return
		}
		if n.save(w) != nil {
			n.Crash(0)
			n.cluster.After(time.Second, n.Restart)
			return
		}
		n.unsynced = slices.Delete(n.unsynced, 0, 1)
		done()
	}
	n.unsynced = append(n.unsynced, w)
	d := delay(n.Options.DiskDelay)
	if d == 0 && !n.Options.Async {
		finish()
		return
	}
	n.later(d, func() { n.onWriteDone(finish) })
}

// onWriteDone is exec for the completion that a busy node waits for.
func (n *Node) onWriteDone(finish func()) {
	if n.paused {
		n.finished = append(n.finished, finish)
		return
	}
	finish()
	n.pump()
	n.drain()
}

func delay(f func() time.Duration) time.Duration {
	if f == nil {
		return 0
	}
	return f()
}

// Torn returns how many Readys crashes have torn.
func (n *Node) Torn() int { return n.losses.torn }

// Recovered returns the commit index that the log proved when the process started, 0
// if the hard state knew it.
func (n *Node) Recovered() uint64 { return n.losses.recovered }

package leasetest

import (
	"errors"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Disk is what a node keeps across crashes. It is raft.Storage plus the writes;
// everything a method has returned for is durable, and a crash loses the rest.
// Only a commit index that comes alone may be put off, if there is a method
// Flush() error to ask for it.
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
	// LoadMaxPromise and SaveMaxPromise implement leaderlease.PromiseStore.
	LoadMaxPromise() (time.Duration, error)
	SaveMaxPromise(d time.Duration) error
}

// memoryDisk is a Disk whose writes are atomic: raft's MemoryStorage. Like a real
// log it does not write a commit index that comes alone; the next write takes it
// along, and a crash before that forgets it.
type memoryDisk struct {
	*raft.MemoryStorage
	// maxPromise is what a process reads, saved what outlives the power.
	maxPromise, saved time.Duration
	// committed is the commit index that is written.
	committed uint64
}

// NewMemoryDisk returns the empty disk of a member of the configuration conf,
// bootstrapped the way raft recommends: a snapshot at index 1.
func NewMemoryDisk(conf *raftpb.ConfState) Disk {
	d := &memoryDisk{MemoryStorage: raft.NewMemoryStorage()}
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
	if !raft.IsEmptySnap(snap) {
		// An older one than the log already begins with is no news.
		if err := d.ApplySnapshot(snap); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
			return err
		}
	}
	if err := d.Append(entries); err != nil {
		return err
	}
	before := d.hardState()
	if !raft.IsEmptyHardState(hard) {
		must(d.SetHardState(hard))
	}
	if now := d.hardState(); len(entries) > 0 || !raft.IsEmptySnap(snap) || now.GetTerm() != before.GetTerm() || now.GetVote() != before.GetVote() {
		return d.Flush()
	}
	return nil
}

// Flush writes a commit index that has come alone.
func (d *memoryDisk) Flush() error {
	d.committed = d.hardState().GetCommit()
	return nil
}

func (d *memoryDisk) hardState() *raftpb.HardState {
	hard, _, err := d.InitialState()
	must(err)
	return hard
}

func (d *memoryDisk) setCommit(index uint64) {
	d.committed = index
	hard := d.hardState()
	if hard.GetCommit() == index {
		return
	}
	must(d.SetHardState(&raftpb.HardState{Term: new(hard.GetTerm()), Vote: new(hard.GetVote()), Commit: new(index)}))
}

// Compact implements Disk.
func (d *memoryDisk) Compact(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	// What is applied is committed, and a log that begins after its own commit
	// index is one that raft refuses to start from.
	d.setCommit(max(index, d.hardState().GetCommit()))
	if _, err := d.CreateSnapshot(index, snap.GetMetadata().GetConfState(), snap.GetData()); err != nil {
		return err
	}
	return d.MemoryStorage.Compact(index)
}

// Reopen implements Disk.
func (d *memoryDisk) Reopen() (Disk, error) {
	d.setCommit(d.committed)
	return d, nil
}

// LoadMaxPromise implements Disk.
func (d *memoryDisk) LoadMaxPromise() (time.Duration, error) { return d.maxPromise, nil }

// SaveMaxPromise implements Disk.
func (d *memoryDisk) SaveMaxPromise(longest time.Duration) error {
	d.maxPromise, d.saved = longest, longest
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

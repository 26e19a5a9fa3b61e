// Package waltest runs simulations of whole clusters on raftwal. Its Disk is a raftwal.Log
// on a disk in memory, which loses random unsynced changes at every crash.
package waltest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

// Disk is a node's disk. It is not safe for concurrent use.
type Disk struct {
	*raftwal.Log

	disk   *fs.Memory
	random *rand.Rand
	stats  *Stats
}

// Stats has the counters of the disks of one NewDisk.
type Stats struct {
	// Reopens counts crashes, Interrupted those within a write, and Torn those
	// after which a torn tail was found. Restarts counts those that began with
	// the end of the process alone.
	Reopens, Interrupted, Torn, Restarts int
	// Segments and Recycled are the logs' own counts.
	Segments, Recycled uint64
}

// segmentSize is small, so that a short run uses many segments.
const segmentSize = 8 << 10

// NewDisk returns a function for leasetest.Options.NewDisk, which makes empty disks for
// nodes. Their crashes depend on the seed only. The disks count in stats, if it is not nil.
func NewDisk(seed uint64, stats *Stats) func(id uint64, conf *raftpb.ConfState) leasetest.Disk {
	if stats == nil {
		stats = &Stats{}
	}
	return func(id uint64, conf *raftpb.ConfState) leasetest.Disk {
		d := &Disk{disk: fs.NewMemory(), random: rand.New(rand.NewPCG(seed, id)), stats: stats}
		must(d.open())
		if conf != nil {
			// The same first entries as on leasetest's own disk.
			snap, err := leasetest.NewMemoryDisk(conf).Snapshot()
			must(err)
			must(d.Log.Save(nil, nil, snap))
		}
		return d
	}
}

func (d *Disk) open() (err error) {
	d.Log, err = raftwal.Open(raftwal.Config{
		FS:             d.disk,
		SegmentSize:    segmentSize,
		MaxRecentBytes: 1 << 10,
		Inline:         true,
		Nonce:          d.random.Uint64,
	})
	return err
}

// Save implements leasetest.Disk.
func (d *Disk) Save(entries []*raftpb.Entry, hard *raftpb.HardState, snap *raftpb.Snapshot) error {
	return d.Log.Save(entries, hard, snap)
}

// Compact implements leasetest.Disk.
func (d *Disk) Compact(snap *raftpb.Snapshot) error {
	if err := d.SaveSnapshot(snap); err != nil {
		return err
	}
	return d.Log.Compact(snap.GetMetadata().GetIndex())
}

// Reopen implements leasetest.Disk. Every second crash interrupts a write that changes
// nothing, because it repeats the end of the log. Every third time the process ends first,
// and the machine crashes after the next process has opened the log, or while that writes.
func (d *Disk) Reopen() (leasetest.Disk, error) {
	d.stats.Reopens++
	stats := d.Stats()
	d.stats.Segments += stats.Segments
	d.stats.Recycled += stats.Recycled
	if d.random.IntN(2) == 0 {
		if err := d.interrupt(); err != nil {
			return nil, err
		}
	}
	if d.random.IntN(3) == 0 {
		d.stats.Restarts++
		next, err := d.next(d.disk.EndProcess())
		if err != nil {
			return nil, fmt.Errorf("waltest: after the end of the process: %w", err)
		}
		if d.random.IntN(2) == 0 {
			if err := next.interrupt(); err != nil {
				return nil, err
			}
		}
		d = next
	}
	next, err := d.next(d.disk.Crash(fs.Something, d.random))
	if err != nil {
		return nil, fmt.Errorf("waltest: after a crash: %w", err)
	}
	return next, nil
}

// next opens the log that d has left.
func (d *Disk) next(disk *fs.Memory) (*Disk, error) {
	next := &Disk{disk: disk, random: d.random, stats: d.stats}
	if err := next.open(); err != nil {
		return nil, err
	}
	if next.Recovered().Torn != nil {
		d.stats.Torn++
	}
	return next, nil
}

// interrupt crashes the disk in one of the next operations.
func (d *Disk) interrupt() error {
	first, err := d.FirstIndex()
	if err != nil {
		return err
	}
	last, err := d.LastIndex()
	if err != nil {
		return err
	}
	from := max(first, last-min(last, d.random.Uint64N(20)))
	entries, err := d.Entries(from, last+1, 1<<20)
	if errors.Is(err, raft.ErrUnavailable) {
		return nil // the log is empty
	}
	if err != nil {
		return err
	}
	hard, _, err := d.InitialState()
	if err != nil {
		return err
	}
	d.stats.Interrupted++
	d.disk.SetHook(fs.CrashAt(d.disk.Ops() + 1 + d.random.IntN(3)))
	// The write must fail, because the crash comes during it.
	_ = d.Log.Save(entries, hard, nil)
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

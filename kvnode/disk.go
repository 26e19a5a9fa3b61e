package kvnode

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/raftwal"
)

// disk notices a disk that does not answer, or is full. The writer counts begun and
// ended; the loop looks at each tick, since a goroutine stuck in a write cannot say so.
type disk struct {
	*parts
	checkpoint lifecycle.Wakeup // asks for one, which may free segments
	applier    *progress        // of the applier

	begun, ended atomic.Uint64
	full         atomic.Bool // the last write found no room
	stuck        atomic.Bool // stalled, for others than the loop

	// The loop only.
	stalled bool
	seen    uint64 // ended, when it last moved
	idle    int    // ticks since then with something under way
}

func (d *disk) begin() { d.begun.Add(1) }
func (d *disk) end()   { d.ended.Add(1) }

// check tells the lease when nothing has become durable for an election timeout
// although something is under way. A leader whose disk hangs keeps its followers' promises
// alive by heartbeats, which need no disk, and would keep everybody from writing for as long
// as the disk hangs. Sooner than an election timeout: a slow sync costs the lease. Later:
// nobody writes for longer than a dead leader would cost.
func (d *disk) check() (unusable bool) {
	begun, ended := d.begun.Load(), d.ended.Load()
	if ended != d.seen || begun == ended {
		d.seen, d.idle = ended, 0
	} else {
		d.idle++
	}
	if stalled := d.idle >= d.cfg.electionTicks(); stalled != d.stalled {
		d.stalled = stalled
		d.stuck.Store(stalled)
		d.lease.SetDiskStalled(stalled)
		d.log.Warn("disk", "stalled", stalled)
	}
	return d.unusable()
}

// unusable is for the loop: nothing that the others commit can be applied here.
func (d *disk) unusable() bool { return d.stalled || d.full.Load() }

// fullDiskPause is between two tries to write to a full disk. Shorter: the tries keep the
// disk busy on which somebody is making room. Longer: writes go on later than they could.
const fullDiskPause = 200 * time.Millisecond

// retry keeps the appender trying while the disk is full: nothing of
// the batch is in the log, so nothing is lost, and reads go on.
func (d *disk) retry(err error) bool {
	if !d.full.Swap(true) {
		d.log.Error("disk is full, writes are refused", append(d.roomFor(cmp.Or(d.cfg.SegmentSize, raftwal.Config{}.WithDefaults().SegmentSize)), "error", err)...)
	}
	d.checkpoint.Wake() // it may free segments
	return d.life.Sleep(fullDiskPause)
}

// written notes that something was written.
func (d *disk) written() {
	if d.full.Load() {
		d.full.Store(false)
		d.log.Info("disk has room again")
	}
}

// roomFor is what the log says about a disk that does not have room for size bytes.
func (d *disk) roomFor(size int64) []any {
	free, known := freeBytes(d.cfg.DataDir)
	return missing(free, known, size)
}

// saveCommit returns when the log has it that index is committed, durably: raft
// hands that to the appender, which puts it off until something else is written. On
// a full disk it waits for room; nobody may rely on the change before. It returns
// false if the node stops meanwhile.
func (d *disk) saveCommit(index uint64) bool {
	d.begin()
	defer d.end()
	err := d.wal.SaveCommit(index)
	for errors.Is(err, raftwal.ErrNoSpace) && d.retry(err) {
		// A restart of the member does not make room, so the applier does not count as hung.
		d.applier.note(time.Now())
		if err = d.wal.SaveCommit(index); err == nil {
			d.written()
		}
	}
	if err != nil {
		d.life.Fail(fmt.Errorf("write the log: %w", err))
	}
	return err == nil
}

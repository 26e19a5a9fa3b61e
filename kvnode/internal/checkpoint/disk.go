package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/raftwal"
)

// fullDiskPause is the pause between two attempts to write to a full disk. With a shorter one, the attempts slow down
// an operator that frees space. With a longer one, writes resume later.
const fullDiskPause = 200 * time.Millisecond

// DiskConfig is what a Disk uses. Every field is required, except SegmentSize.
type DiskConfig struct {
	Dir         string // the data directory
	SegmentSize int64  // that of raftwal.Config
	Log         *raftwal.Log
	// The disk counts as stalled after StallTicks ticks in which a write is in progress and none ends.
	StallTicks int
	// OnStall is called by the raft loop when the disk stalls, and when it answers again.
	OnStall   func(stalled bool)
	Lifecycle *lifecycle.Lifecycle
	Logger    *slog.Logger
}

// Disk detects that the disk of the log hangs, or is full.
//
// The writers count the start and the end of each write, and the raft loop looks at the counts at each
// tick, since a goroutine that hangs in a write cannot report it. All methods but Tick are safe for
// concurrent use.
type Disk struct {
	cfg    DiskConfig
	wakeup lifecycle.Wakeup // of the Checkpointer, since a checkpoint may free segments

	started, ended atomic.Uint64 // writes
	full           atomic.Bool   // the newest write found no free space
	stalled        atomic.Bool

	// Used by the raft loop only.
	lastEnded    uint64
	stalledTicks int // the number of ticks since lastEnded changed, while a write is in progress
}

// NewDisk returns a Disk.
func NewDisk(cfg DiskConfig) *Disk { return &Disk{cfg: cfg, wakeup: lifecycle.NewWakeup()} }

// WriteStarted notes that a write has started. WriteEnded follows, also if the write fails.
func (d *Disk) WriteStarted() { d.started.Add(1) }

// WriteEnded notes that a write has ended.
func (d *Disk) WriteEnded() { d.ended.Add(1) }

// Tick calls OnStall if no write has ended for StallTicks although one is in progress, and when the
// disk answers again. It returns IsUnusable.
//
// A leader with a disk that hangs still renews its followers' promises, because heartbeats need no disk. Without
// OnStall no other member could be elected, and no client could write, for as long as the disk hangs.
func (d *Disk) Tick() (unusable bool) {
	started, ended := d.started.Load(), d.ended.Load()
	if ended != d.lastEnded || started == ended {
		d.lastEnded, d.stalledTicks = ended, 0
	} else {
		d.stalledTicks++
	}
	if stalled := d.stalledTicks >= d.cfg.StallTicks; stalled != d.stalled.Load() {
		d.stalled.Store(stalled)
		d.cfg.OnStall(stalled)
		if stalled {
			d.cfg.Logger.Warn("the disk of the log does not answer", "ticks", d.stalledTicks)
		} else {
			d.cfg.Logger.Info("the disk of the log answers again")
		}
	}
	return d.IsUnusable()
}

// IsStalled reports whether the disk does not answer.
func (d *Disk) IsStalled() bool { return d.stalled.Load() }

// IsFull reports whether the disk is full: the member refuses writes.
func (d *Disk) IsFull() bool { return d.full.Load() }

// IsUnusable reports whether the disk is stalled or full. This member then cannot apply what the
// cluster commits.
func (d *Disk) IsUnusable() bool { return d.IsStalled() || d.IsFull() }

// WaitToRetry waits after a write that found no free space. It returns true if the caller must repeat the write, or
// false if the member stops. Such a write has left nothing in the log, so it can be repeated.
func (d *Disk) WaitToRetry(err error) bool {
	if !d.full.Swap(true) {
		size := cmp.Or(d.cfg.SegmentSize, raftwal.Config{}.WithDefaults().SegmentSize)
		d.cfg.Logger.Error("disk is full, writes are refused", append(d.spaceFor(size), "error", err)...)
	}
	d.wakeup.Wake()
	return d.cfg.Lifecycle.Sleep(fullDiskPause)
}

// WriteSucceeded notes that a write found free space.
func (d *Disk) WriteSucceeded() {
	if d.full.Load() {
		d.full.Store(false)
		d.cfg.Logger.Info("disk has room again")
	}
}

// SaveCommit makes it durable in the log that index is committed. Raft leaves that to the next write of the
// appender, which is too late for the caller. On a full disk SaveCommit waits for free space. It calls progress
// before each further attempt, so that the caller does not count as hung. It returns false if the member stops or
// the write fails.
func (d *Disk) SaveCommit(index uint64, progress func()) bool {
	d.WriteStarted()
	defer d.WriteEnded()
	err := d.cfg.Log.SaveCommit(index)
	for errors.Is(err, raftwal.ErrNoSpace) && d.WaitToRetry(err) {
		progress()
		if err = d.cfg.Log.SaveCommit(index); err == nil {
			d.WriteSucceeded()
		}
	}
	if err != nil {
		d.cfg.Lifecycle.Fail(fmt.Errorf("write the log: %w", err))
	}
	return err == nil
}

// spaceFor returns the attributes of a log line about a disk that lacks space for size bytes.
func (d *Disk) spaceFor(size int64) []any {
	free, known := freeBytes(d.cfg.Dir)
	return spaceAttrs(free, known, size)
}

func spaceAttrs(free int64, known bool, size int64) []any {
	if !known {
		return []any{"needed_bytes", size}
	}
	return []any{"needed_bytes", size, "free_bytes", free, "missing_bytes", max(size-free, 0)}
}

// IsNoSpace reports whether err means that the disk is full. The log has an error of its own for that.
func IsNoSpace(err error) bool {
	return errors.Is(err, raftwal.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

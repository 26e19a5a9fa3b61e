package raftwal

import (
	"sync/atomic"
	"time"
)

// Stats counts what a Log has done since Open.
type Stats struct {
	// Syncs is how many batches, or beginnings of a segment, were written and
	// synced; SyncTime is how long that took, and MaxSyncTime the longest.
	Syncs                 uint64
	SyncTime, MaxSyncTime time.Duration
	// DirSyncs is how often the directory was synced.
	DirSyncs uint64
	// Entries and Bytes are what was written; Bytes with all that goes along.
	Entries, Bytes uint64
	// Segments is how many segments were begun, Recycled how many became
	// spares.
	Segments, Recycled uint64
}

// counters is Stats while it is counted.
type counters struct {
	syncs, dirSyncs    atomic.Uint64
	entries, bytes     atomic.Uint64
	segments, recycled atomic.Uint64
	syncTime           atomic.Int64
	maxSyncTime        atomic.Int64
}

// sync counts one write and sync. Only writers call it.
func (c *counters) sync(n int, took time.Duration) {
	c.syncs.Add(1)
	c.bytes.Add(uint64(n))
	c.syncTime.Add(int64(took))
	c.maxSyncTime.Store(max(c.maxSyncTime.Load(), int64(took)))
}

// Stats returns what the log has done so far.
func (l *Log) Stats() Stats {
	c := &l.stats
	return Stats{
		Syncs:       c.syncs.Load(),
		SyncTime:    time.Duration(c.syncTime.Load()),
		MaxSyncTime: time.Duration(c.maxSyncTime.Load()),
		DirSyncs:    c.dirSyncs.Load(),
		Entries:     c.entries.Load(),
		Bytes:       c.bytes.Load(),
		Segments:    c.segments.Load(),
		Recycled:    c.recycled.Load(),
	}
}

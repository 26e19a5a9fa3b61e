package raftwal

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

// What the disk takes to write and what it takes to sync are told apart, in buckets that
// are finer than etcd's and have all of its bounds.
func TestStatsTellWriteFromSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fs.NewMemory()
		l := mustOpen(t, testConfig(disk))
		defer l.Close()
		before := l.Stats()
		disk.SetHook(func(op fs.Op) *fs.Fault {
			switch op.Kind {
			case fs.OpWrite:
				time.Sleep(3 * time.Millisecond)
			case fs.OpSync:
				time.Sleep(200 * time.Microsecond)
			}
			return nil
		})
		must(t, l.Save(entries(1, 1, 1, 10), hard(1, 2, 0), nil))
		disk.SetHook(nil)
		s := l.Stats()
		if s.Syncs != before.Syncs+1 || s.SyncTime-before.SyncTime != 3200*time.Microsecond || s.FlushTime-before.FlushTime != 200*time.Microsecond {
			t.Errorf("Stats() = %+v after %+v, want one sync of 3.2ms, 0.2ms of it without the write", s, before)
		}
		for i, bound := range SyncBounds {
			flushed, synced := s.FlushWithin[i]-before.FlushWithin[i], s.SyncWithin[i]-before.SyncWithin[i]
			if (flushed == 1) != (bound >= 250*time.Microsecond) || (synced == 1) != (bound >= 4*time.Millisecond) {
				t.Errorf("within %v: %d syncs and %d with their write, want it from 250µs and from 4ms on", bound, flushed, synced)
			}
		}
	})
	for bound := time.Millisecond; bound <= 8192*time.Millisecond; bound *= 2 {
		if !slices.Contains(SyncBounds, bound) {
			t.Errorf("SyncBounds lack etcd's %v", bound)
		}
	}
}

package kvnode

import (
	"testing"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

// slowly has the log's disk take that long for each sync.
func slowly(cfg *Config, sync time.Duration) {
	disk, ok := cfg.walFS.(*fs.Memory)
	if !ok {
		disk = fs.NewMemory()
		cfg.walFS = disk
	}
	disk.SetHook(func(op fs.Op) *fs.Fault {
		if op.Kind == fs.OpSync {
			time.Sleep(sync)
		}
		return nil
	})
}

// An election waits for the disks of two members, and lasts for longer than any turn then.
// Who has voted does not stand while it may be won: each would outvote the one before, and
// nobody lead for seconds.
func TestAKilledLeaderIsReplacedWhereDisksAreSlow(t *testing.T) {
	for sync, members := range map[time.Duration]int{110 * time.Millisecond: 5, 150 * time.Millisecond: 3} {
		inCluster(t, members, func(cfg *Config) { slowly(cfg, sync) }, func(t *testing.T, c *cluster) {
			for range 3 {
				old := c.leader()
				time.Sleep(3 * time.Second)
				c.crash(old)
				died := time.Now()
				next := c.leader()
				if took := time.Since(died); took > 1300*time.Millisecond {
					t.Errorf("%d members, a sync of %v: the next leader, of term %d after %d, serves after %v", members, sync, next.Term(), old.Term(), took)
				}
				cfg := c.cfgs[old.Name()]
				slowly(&cfg, sync)
				c.start(old.Name())
			}
		})
	}
}

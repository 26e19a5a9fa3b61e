package storetest_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// errCommit is the error of an injected failure.
var errCommit = errors.New("storetest: commit failed")

const (
	// failOneIn is how rarely a commit, an installation or an EnsureDurable fails.
	failOneIn = 8
	// failAgainOneIn is the same right after a failure: disks that fail tend to fail again.
	failAgainOneIn = 2
)

// failures decides which operations of a disk fail.
type failures struct {
	random *rand.Rand
	failed bool
}

// next reports whether the next operation fails.
func (f *failures) next() bool {
	n := failOneIn
	if f.failed {
		n = failAgainOneIn
	}
	f.failed = f.random.IntN(n) == 0
	return f.failed
}

// memoryDisk is a storetest.Disk that fails commits at random: before any process sees the commit,
// after all processes see it but before it is durable, or after it is durable.
type memoryDisk struct {
	store.Backend
	disk *storetest.Disk
	dir  string // for snapshots that arrive

	failures
	stats *Stats
	// failing is the step that the operation under way fails at, empty for none.
	failing storetest.Op
	// undurable is set while the newest commit is visible but not durable.
	undurable bool
	// open is set once Open has called EnsureDurable. A failure there would end the process.
	open bool
}

func newMemoryDisk(dir string, random *rand.Rand, stats *Stats) *memoryDisk {
	d := &memoryDisk{disk: storetest.NewDisk(), dir: dir, failures: failures{random: random}, stats: stats}
	d.Backend = d.disk.Open()
	d.disk.Fail(d.step)
	return d
}

// step returns the error of one step of the disk.
func (d *memoryDisk) step(op storetest.Op) error {
	switch op {
	case storetest.OpEnsureDurable:
		if d.open && d.next() {
			return errCommit
		}
		d.open, d.undurable = true, false
	case storetest.OpCommit:
		d.failing = d.pick(storetest.OpCommit, storetest.OpSync, storetest.OpCommitted)
	case storetest.OpInstall:
		d.failing = d.pick(storetest.OpInstall, storetest.OpInstalled)
	case storetest.OpCommitted, storetest.OpInstalled:
		d.undurable = false
	}
	if d.failing != op {
		return nil
	}
	d.failing = ""
	d.undurable = d.undurable || op == storetest.OpSync
	return errCommit
}

// pick returns the step at which the operation under way fails, if it does.
func (d *memoryDisk) pick(steps ...storetest.Op) storetest.Op {
	if !d.next() {
		return ""
	}
	d.stats.Failed++
	return steps[d.random.IntN(len(steps))]
}

// arrive implements disk.
func (d *memoryDisk) arrive(data []byte) (string, error) {
	path := filepath.Join(d.dir, "incoming")
	return path, os.WriteFile(path, data, 0o600)
}

// reopen implements disk. The backend of the last process fails from then on.
func (d *memoryDisk) reopen(powerFails bool) (disk, error) {
	if powerFails {
		d.disk.PowerFailure()
	} else if d.undurable {
		d.stats.Undurable++
	}
	next := &memoryDisk{Backend: d.disk.Open(), disk: d.disk, dir: d.dir, failures: failures{random: d.random}, stats: d.stats}
	d.disk.Fail(next.step)
	return next, nil
}

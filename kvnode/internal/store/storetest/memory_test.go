package storetest_test

import (
	"errors"
	"math/rand/v2"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// errCommit is what a commit fails with now and then.
var errCommit = errors.New("storetest: commit failed")

// failOneIn says how seldom a commit or an installation fails, failAgainOneIn how
// seldom one after that.
const (
	failOneIn      = 8
	failAgainOneIn = 2
)

// trouble is a disk's. What fails once is likely to fail again.
type trouble struct {
	random *rand.Rand
	failed bool
}

// comes reports whether the next commit fails.
func (t *trouble) comes() bool {
	n := failOneIn
	if t.failed {
		n = failAgainOneIn
	}
	t.failed = t.random.IntN(n) == 0
	return t.failed
}

// memoryDisk is a disk in memory. A commit that fails may have taken effect: for
// this process, for the next one, for the one after a power failure, or not. That
// is what a failed sync leaves of a file that is mapped into memory, and a process
// that ends between a write and its sync.
type memoryDisk struct {
	seen    *storetest.Contents // by this process
	cached  *storetest.Contents // by the next one, if no more than this process ends
	durable *storetest.Contents // by the next one, if the power fails
	files   map[string][]byte

	trouble
	stats *Stats
	// begun says that the process has come through its start: it ends if a
	// Settle fails there.
	begun  bool
	closed bool
}

func newMemoryDisk(random *rand.Rand, stats *Stats) *memoryDisk {
	empty := &storetest.Contents{}
	return &memoryDisk{
		seen: empty, cached: empty, durable: empty,
		files: make(map[string][]byte), trouble: trouble{random: random}, stats: stats,
	}
}

// arrive implements disk.
func (d *memoryDisk) arrive(data []byte) (string, error) {
	d.files["incoming"] = data
	return "incoming", nil
}

// reopen implements disk. The last process cannot change anything any more.
func (d *memoryDisk) reopen(powerFails bool) (disk, error) {
	d.closed = true
	found := d.cached
	if powerFails {
		found = d.durable
	}
	if found != d.durable {
		d.stats.Unsettled++
	}
	return &memoryDisk{
		seen: found, cached: found, durable: d.durable,
		files: make(map[string][]byte), trouble: trouble{random: d.random}, stats: d.stats,
	}, nil
}

var errClosed = errors.New("storetest: disk of a process that has ended")

// Settle implements store.Backend.
func (d *memoryDisk) Settle() error {
	switch {
	case d.closed:
		return errClosed
	case d.begun && d.comes():
		return errCommit
	}
	d.begun = true
	d.cached, d.durable = d.seen, d.seen
	return nil
}

// commit replaces what the disk holds by c, or fails.
func (d *memoryDisk) commit(c *storetest.Contents) error {
	if d.closed {
		return errClosed
	}
	if !d.comes() {
		d.seen, d.cached, d.durable = c, c, c
		return nil
	}
	d.stats.Failed++
	for _, layer := range []**storetest.Contents{&d.seen, &d.cached, &d.durable} {
		if d.random.IntN(2) == 0 {
			*layer = c
		}
	}
	return errCommit
}

// View implements store.Backend.
func (d *memoryDisk) View() (store.Image, error) { return d.seen.Image(), nil }

// Update implements store.Backend.
func (d *memoryDisk) Update(fn func(tx store.Tx) error) error {
	next, err := d.seen.Change(fn, func() error { return nil })
	if err != nil {
		return err
	}
	// What it writes goes to pages that are free in what this process sees, not
	// in what is durable.
	if d.seen != d.durable {
		d.durable = storetest.Torn()
	}
	return d.commit(next)
}

// Stage implements store.Backend.
func (d *memoryDisk) Stage(path string) (store.Staged, error) {
	c, err := storetest.Decode(d.files[path])
	if err != nil {
		return nil, err
	}
	return &staged{c.Image(), c, d, path}, nil
}

// Defragment implements store.Backend.
func (d *memoryDisk) Defragment() error { return nil }

// Size implements store.Backend.
func (d *memoryDisk) Size() (total, inUse int64) {
	n := d.seen.Image().Size()
	return n, n
}

// Close implements store.Backend.
func (d *memoryDisk) Close() error { return nil }

// staged is a store.Staged.
type staged struct {
	store.Image
	contents *storetest.Contents
	d        *memoryDisk
	path     string
}

// Install implements store.Staged.
func (s *staged) Install() error {
	delete(s.d.files, s.path)
	return s.d.commit(s.contents)
}

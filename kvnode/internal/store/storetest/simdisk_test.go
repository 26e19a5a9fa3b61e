package storetest_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// disk is where a machine keeps its checkpoints.
type disk interface {
	store.Backend
	// arrive puts a snapshot from a peer where Restore finds it.
	arrive(data []byte) (path string, err error)
	// reopen returns the disk as a new process finds it, when the store of the
	// last one is closed. If the power fails in between, it finds what is durable.
	reopen(powerFails bool) (disk, error)
}

// boltDisk is a bbolt database. Of a commit that fails the meta page is in memory
// only, and everything else as bbolt leaves it.
type boltDisk struct {
	store.Backend
	path string
	// lost are the meta pages as a power failure leaves them, nil if the file has
	// them.
	lost []byte

	trouble
	stats *Stats
}

func openBolt(path string, random *rand.Rand, stats *Stats) (*boltDisk, error) {
	b, err := boltdb.Open(path)
	if err != nil {
		return nil, err
	}
	return &boltDisk{Backend: b, path: path, trouble: trouble{random: random}, stats: stats}, nil
}

func (d *boltDisk) arrive(data []byte) (string, error) {
	path := d.path + ".incoming"
	return filepath.Clean(path), os.WriteFile(path, data, 0o600)
}

func (d *boltDisk) reopen(powerFails bool) (disk, error) {
	if powerFails && d.lost != nil {
		must(d.writeMetas())
		d.lost = nil
	}
	if d.lost != nil {
		d.stats.Unsettled++
	}
	next, err := openBolt(d.path, d.random, d.stats)
	if err != nil {
		return nil, err
	}
	next.lost = d.lost
	return next, nil
}

// Settle implements store.Backend. That it does what it says is tested in package
// store.
func (d *boltDisk) Settle() error {
	err := d.Backend.Settle()
	if err == nil {
		d.lost = nil
	}
	return err
}

// Update implements store.Backend.
func (d *boltDisk) Update(fn func(tx store.Tx) error) error {
	before := d.metas()
	if err := d.Backend.Update(fn); err != nil {
		return err
	}
	if !d.comes() {
		d.lost = nil
		return nil
	}
	d.stats.Failed++
	if d.lost == nil {
		d.lost = before
	}
	return errCommit
}

// Stage implements store.Backend.
func (d *boltDisk) Stage(path string) (store.Staged, error) {
	s, err := d.Backend.Stage(path)
	if err != nil {
		return nil, err
	}
	return &boltStaged{s, d}, nil
}

// boltStaged is a file that takes the place of another one.
type boltStaged struct {
	store.Staged
	d *boltDisk
}

// Install implements store.Staged.
func (s *boltStaged) Install() error {
	err := s.Staged.Install()
	if err == nil {
		s.d.lost = nil
	}
	return err
}

// metas returns the meta pages.
func (d *boltDisk) metas() []byte {
	f, err := os.Open(d.path)
	must(err)
	pages := make([]byte, 2*os.Getpagesize())
	_, err = io.ReadFull(f, pages)
	must(errors.Join(err, f.Close()))
	return pages
}

// writeMetas writes the pages that were lost over those that were not durable.
func (d *boltDisk) writeMetas() error {
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(d.lost, 0)
	return errors.Join(err, f.Close())
}

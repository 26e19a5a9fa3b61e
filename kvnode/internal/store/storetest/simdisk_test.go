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

// disk is the backend of a machine.
type disk interface {
	store.Backend
	// arrive writes a snapshot from a peer to a file for Restore.
	arrive(data []byte) (path string, err error)
	// reopen returns the disk as the next process finds it. After a power failure that is
	// what is durable.
	reopen(powerFails bool) (disk, error)
}

// boltDisk is a bbolt database. When a commit fails, its meta page is in memory only, and a power
// failure brings back the old one.
type boltDisk struct {
	store.Backend
	path string
	// lost holds the meta pages that a power failure leaves. It is nil if they equal the file's.
	lost []byte

	failures
	stats *Stats
}

func openBolt(path string, random *rand.Rand, stats *Stats) (*boltDisk, error) {
	b, err := boltdb.Open(path)
	if err != nil {
		return nil, err
	}
	return &boltDisk{Backend: b, path: path, failures: failures{random: random}, stats: stats}, nil
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
		d.stats.Undurable++
	}
	next, err := openBolt(d.path, d.random, d.stats)
	if err != nil {
		return nil, err
	}
	next.lost = d.lost
	return next, nil
}

// EnsureDurable implements store.Backend.
func (d *boltDisk) EnsureDurable() error {
	err := d.Backend.EnsureDurable()
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
	if !d.next() {
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

// boltStaged notes when a snapshot replaces the database.
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

// metas reads the two meta pages.
func (d *boltDisk) metas() []byte {
	f, err := os.Open(d.path)
	must(err)
	pages := make([]byte, 2*os.Getpagesize())
	_, err = io.ReadFull(f, pages)
	must(errors.Join(err, f.Close()))
	return pages
}

// writeMetas overwrites the meta pages with the lost ones.
func (d *boltDisk) writeMetas() error {
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(d.lost, 0)
	return errors.Join(err, f.Close())
}

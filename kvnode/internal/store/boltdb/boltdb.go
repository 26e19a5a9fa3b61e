// Package boltdb keeps a store's checkpoints, and snapshots of them, in bbolt databases.
package boltdb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal/fs"
)

// backend keeps checkpoints in a bbolt database. Commits are serialised by the
// store; images are opened and read at any time.
type backend struct {
	path string

	mu struct {
		sync.Mutex
		file   *file
		failed error // why nothing may be committed any more
		closed bool
	}
}

// file is an open database that lives until its last image is closed, though
// another file may have taken its name. Closing a bbolt database earlier would
// wait for them.
type file struct {
	db *bbolt.DB
	// refs counts the images, and the backend while this is its file. Under the
	// backend's mu.
	refs int
	// size is as of the last commit. Each write asks for it, and bbolt tells it in a transaction
	// alone, which takes locks that a commit holds.
	size atomic.Pointer[size]
}

// size is how large a database is, and how much of it is in use.
type size struct{ total, inUse int64 }

// newFile returns an open database that is somebody's.
func newFile(db *bbolt.DB) *file {
	f := &file{db: db, refs: 1}
	f.measure()
	return f
}

// measure looks up the size. It comes after each commit.
func (f *file) measure() {
	var now size
	err := f.db.View(func(tx *bbolt.Tx) error {
		stats := f.db.Stats()
		now.total = tx.Size()
		now.inUse = now.total - int64(stats.FreePageN+stats.PendingPageN)*int64(f.db.Info().PageSize)
		return nil
	})
	if err == nil { // else it is closed
		f.size.Store(&now)
	}
}

// Open opens, or makes, the bbolt database at path. What a crash left beside
// it is removed.
func Open(path string) (store.Backend, error) {
	for _, left := range []string{newName(path), defragName(path)} {
		if err := os.Remove(left); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("store: remove what is left of %s: %w", left, err)
		}
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := create(path); err != nil {
			return nil, fmt.Errorf("store: make database %s: %w", path, err)
		}
	}
	db, err := openChecked(path)
	if err != nil {
		return nil, fmt.Errorf("store: open database %s: %w", path, err)
	}
	b := &backend{path: path}
	b.mu.file = newFile(db)
	return b, nil
}

func newName(path string) string    { return path + ".new" }
func defragName(path string) string { return path + ".defrag" }

// create makes an empty database under another name first: one that bears
// the name is complete.
func create(path string) error {
	db, err := openDB(newName(path), false)
	if err != nil {
		return err
	}
	err = Guard(func() error { return db.Update(initBuckets) })
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return rename(newName(path), path)
}

// rename gives a file that is durable another name, durably.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(to))
}

// acquire returns the current file for a while.
func (b *backend) acquire() (*file, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return nil, store.ErrClosed
	}
	b.mu.file.refs++
	return b.mu.file, nil
}

func (b *backend) release(f *file) error {
	b.mu.Lock()
	f.refs--
	last := f.refs == 0
	b.mu.Unlock()
	if last {
		return f.db.Close()
	}
	return nil
}

// replace makes db the current file.
func (b *backend) replace(db *bbolt.DB) error {
	next := newFile(db)
	b.mu.Lock()
	old := b.mu.file
	b.mu.file = next
	b.mu.Unlock()
	return b.release(old)
}

// fail keeps anything from being committed to a file that may have lost its name.
func (b *backend) fail(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.failed = fmt.Errorf("the database was being replaced: %w", err)
	return err
}

func (b *backend) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.failed
}

func (b *backend) Update(fn func(tx store.Tx) error) error {
	if err := b.failed(); err != nil {
		return err
	}
	f, err := b.acquire()
	if err != nil {
		return err
	}
	err = Guard(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			records := tx.Bucket(recordBucket)
			// Keys come in ascending order, so pages fill from the left.
			records.FillPercent = 0.9
			return fn(change{tx.Bucket(metaBucket), records})
		})
	})
	f.measure()
	return errors.Join(err, b.release(f))
}

type change struct{ meta, records *bbolt.Bucket }

func (t change) Meta() []byte                      { return t.meta.Get(stateKey) }
func (t change) SetMeta(meta []byte) error         { return t.meta.Put(stateKey, meta) }
func (t change) Record(key []byte) []byte          { return t.records.Get(key) }
func (t change) SetRecord(key, value []byte) error { return t.records.Put(key, value) }
func (t change) DeleteRecord(key []byte) error     { return t.records.Delete(key) }

func (b *backend) Size() (total, inUse int64) {
	b.mu.Lock()
	f, closed := b.mu.file, b.mu.closed
	b.mu.Unlock()
	s := f.size.Load()
	if closed || s == nil {
		return 0, 0
	}
	return s.total, s.inUse
}

func (b *backend) Close() error {
	b.mu.Lock()
	closed, f := b.mu.closed, b.mu.file
	b.mu.closed = true
	b.mu.Unlock()
	if closed {
		return nil
	}
	return b.release(f)
}

// Settle implements store.Backend: it makes durable what bbolt shows. A process that has ended between bbolt's
// write and its sync, or whose sync has failed, leaves the newest meta page in
// memory only; one that has ended within a replacement leaves the file's name
// there.
//
// It is for the time between commits. Readers may go on: no byte of what they see
// changes.
func (b *backend) Settle() error {
	if err := b.failed(); err != nil {
		return err
	}
	f, err := b.acquire()
	if err != nil {
		return err
	}
	err = settlePath(b.path, int64(f.db.Info().PageSize))
	return errors.Join(err, b.release(f))
}

func settlePath(path string, pageSize int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(Settle(f, pageSize), f.Close()); err != nil {
		return fmt.Errorf("make the newest checkpoint in %s durable: %w", path, err)
	}
	return fs.SyncDir(filepath.Dir(path))
}

// Settle writes the newest meta page of f again and syncs all of f. The sync alone
// would not do: after one that has failed, the operating system takes the page for
// written.
//
// The other pages need not be written again. bbolt writes a meta page only when a
// sync of all that it refers to has succeeded, and never writes those pages while
// it is the newest; so it does not matter what became of the pages of a commit
// that got no further. A tool that copied the file here may not have synced it at all,
// which the sync makes up for.
//
// A power failure during the write leaves this meta page or the one before, and
// nobody relies on this one yet: it is one sector.
func Settle(f SettleFile, pageSize int64) error {
	page, at, err := newestMeta(f, pageSize)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(page, at); err != nil {
		return err
	}
	return f.Sync()
}

// SettleFile is what Settle needs of a file.
type SettleFile interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// Package boltdb implements store.Backend with bbolt databases. It also opens, checks and converts
// snapshot files, which are such databases.
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

// backend keeps checkpoints in a bbolt database. The store serialises commits. Images are opened
// and read at any time.
type backend struct {
	path string

	mu struct {
		sync.Mutex
		file   *file
		failed error // set when commits must fail
		closed bool
	}
}

// file is an open database. It stays open until its last image is closed, even if another file has
// replaced it, because closing a bbolt database waits for its read transactions.
type file struct {
	db *bbolt.DB
	// refs counts the images, plus one while this is the backend's current file. Under the
	// backend's mu.
	refs int
	// size is as of the last commit. The quota check of each client's write reads it. bbolt's own
	// number needs a transaction, which waits for locks that a commit holds.
	size atomic.Pointer[size]
}

// size is the size of a database, and how many bytes of it are in use.
type size struct{ total, inUse int64 }

// newFile returns a file with one reference.
func newFile(db *bbolt.DB) *file {
	f := &file{db: db, refs: 1}
	f.measure()
	return f
}

// measure updates size after a commit.
func (f *file) measure() {
	var now size
	err := f.db.View(func(tx *bbolt.Tx) error {
		stats := f.db.Stats()
		now.total = tx.Size()
		now.inUse = now.total - int64(stats.FreePageN+stats.PendingPageN)*int64(f.db.Info().PageSize)
		return nil
	})
	if err == nil { // otherwise it is closed
		f.size.Store(&now)
	}
}

// Open opens the database at path, or creates it. It removes temporary files that a crash left next
// to it.
func Open(path string) (store.Backend, error) {
	for _, left := range []string{newName(path), defragName(path)} {
		if err := os.Remove(left); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("store: remove leftover file %s: %w", left, err)
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

// create makes an empty database under another name first, so a file with the final name is
// complete.
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

// rename renames a durable file, durably.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(to))
}

// acquire returns the current file with one more reference.
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

// fail makes all later commits fail: after a failed rename the file may have lost its name.
func (b *backend) fail(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.failed = fmt.Errorf("an earlier replacement of the database failed (restart the member): %w", err)
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
			// Keys are written in ascending order, so pages fill from the left.
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

// EnsureDurable implements store.Backend: it makes the data that bbolt shows durable. A process that
// ended between bbolt's write and its sync, or with a failed sync, leaves the newest meta page in
// memory only. A process that ended during a replacement may leave the file's name in memory only.
//
// It must not run during a commit. Readers may continue, because no byte that they see changes.
func (b *backend) EnsureDurable() error {
	if err := b.failed(); err != nil {
		return err
	}
	f, err := b.acquire()
	if err != nil {
		return err
	}
	err = ensurePathDurable(b.path, int64(f.db.Info().PageSize))
	return errors.Join(err, b.release(f))
}

func ensurePathDurable(path string, pageSize int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(EnsureDurable(f, pageSize), f.Close()); err != nil {
		return fmt.Errorf("make the newest checkpoint in %s durable: %w", path, err)
	}
	return fs.SyncDir(filepath.Dir(path))
}

// EnsureDurable rewrites the newest meta page of f and syncs f. A sync alone is not enough: after a
// failed sync the operating system may consider the page clean.
//
// The other pages need no rewrite. bbolt writes a meta page only after all pages that it refers to
// are synced, and does not overwrite those pages while the meta page is the newest. So pages of an
// unfinished commit do not matter. If a tool copied the file here without a sync, this sync makes
// up for it.
//
// A power failure during the write is harmless, because the data of a meta page fits one sector. If
// the newest meta page was durable, the write changes no byte. If not, the one before it may come
// back, and nothing relies on the newest yet.
func EnsureDurable(f File, pageSize int64) error {
	page, at, err := newestMeta(f, pageSize)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(page, at); err != nil {
		return err
	}
	return f.Sync()
}

// File is the part of a file that EnsureDurable uses.
type File interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

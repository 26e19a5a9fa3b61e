package boltdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// image is a read transaction.
type image struct {
	tx    *bbolt.Tx
	close func() error // once
}

func (b *backend) View() (store.Image, error) {
	f, err := b.acquire()
	if err != nil {
		return nil, err
	}
	img, err := newImage(f.db, func() error { return b.release(f) })
	if err != nil {
		return nil, errors.Join(err, b.release(f))
	}
	return img, nil
}

// newImage returns an image of db. Closing it calls done.
func newImage(db *bbolt.DB, done func() error) (*image, error) {
	tx, err := db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &image{tx, sync.OnceValue(func() error { return errors.Join(tx.Rollback(), done()) })}, nil
}

// openImage opens a snapshot file for reading.
func openImage(path string) (store.Image, error) {
	db, err := openDB(path, true)
	if err != nil {
		return nil, err
	}
	var img *image
	err = Guard(func() error {
		if err := db.View(func(tx *bbolt.Tx) error { return checkFormat(tx, path) }); err != nil {
			return err
		}
		img, err = newImage(db, db.Close)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return img, nil
}

func (i *image) Meta() (meta []byte) {
	err := Guard(func() error {
		meta = bytes.Clone(i.tx.Bucket(metaBucket).Get(stateKey))
		return nil
	})
	if err != nil {
		// Nil would mean an empty database.
		return []byte{}
	}
	return meta
}

func (i *image) Records(fn func(key, value []byte) error) error {
	return Guard(func() error {
		defer drop(i.tx)
		return i.tx.Bucket(recordBucket).ForEach(fn)
	})
}

func (i *image) Size() int64 { return i.tx.Size() }

func (i *image) WriteTo(w io.Writer) (int64, error) { return i.tx.WriteTo(w) }

func (i *image) Close() error { return i.close() }

// staged is a snapshot file, open for writing.
type staged struct {
	*image
	to   *backend
	path string
	db   *bbolt.DB // nil once the backend owns it
}

func (b *backend) Stage(path string) (store.Staged, error) {
	db, err := openChecked(path)
	if err != nil {
		return nil, err
	}
	img, err := newImage(db, func() error { return nil })
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &staged{img, b, path, db}, nil
}

func (s *staged) Install() error {
	if err := s.to.failed(); err != nil {
		return err
	}
	if err := s.db.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := rename(s.path, s.to.path); err != nil {
		return s.to.fail(err)
	}
	db := s.db
	s.db = nil
	// The old file has lost its name, so an error of closing it does not matter.
	_ = s.to.replace(db)
	return nil
}

func (s *staged) Close() error {
	err := s.image.Close()
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

// compactBatch is how many bytes of records a defragmentation writes in one transaction.
const compactBatch = 4 << 20

func (b *backend) Defragment() error {
	if err := b.failed(); err != nil {
		return err
	}
	part := defragName(b.path)
	// A leftover of a failed defragmentation would use the space that the next one needs.
	defer func() { _ = os.Remove(part) }() // a no-op after the rename
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := b.compactInto(part)
	if err != nil {
		return err
	}
	if err := rename(part, b.path); err != nil {
		return errors.Join(b.fail(err), db.Close())
	}
	return b.replace(db)
}

// compactInto copies the records to a new database, and returns it when it is durable.
func (b *backend) compactInto(path string) (*bbolt.DB, error) {
	f, err := b.acquire()
	if err != nil {
		return nil, err
	}
	db, err := openDB(path, false)
	if err != nil {
		return nil, errors.Join(err, b.release(f))
	}
	err = Guard(func() error { return bbolt.Compact(db, f.db, compactBatch) })
	err = errors.Join(err, b.release(f))
	if err == nil {
		err = db.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// ReadCheckpoint calls store.ReadCheckpoint for a snapshot file.
func ReadCheckpoint(path string) (store.Checkpoint, error) {
	return read(path, "read", store.ReadCheckpoint)
}

// Inspect calls store.Inspect for a snapshot file. It does not change the file.
func Inspect(path string) (store.Summary, error) {
	return read(path, "inspect", store.Inspect)
}

// Bootstrap calls store.Bootstrap for a snapshot file, which it changes in place.
func Bootstrap(path string, cfg store.BootstrapConfig) (store.Checkpoint, error) {
	c, err := bootstrap(path, cfg)
	if err != nil {
		return store.Checkpoint{}, fmt.Errorf("store: bootstrap from snapshot %s: %w", path, err)
	}
	return c, nil
}

func bootstrap(path string, cfg store.BootstrapConfig) (c store.Checkpoint, err error) {
	if _, err := os.Stat(path); err != nil {
		return c, err // Open would create it
	}
	b, err := Open(path)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return store.Bootstrap(b, cfg)
}

// read calls fn for a snapshot file. verb is for errors.
func read[T any](path, verb string, fn func(store.Image) (T, error)) (T, error) {
	var got T
	img, err := openImage(path)
	if err == nil {
		got, err = fn(img)
		err = errors.Join(err, img.Close())
	}
	if err != nil {
		var none T
		return none, fmt.Errorf("store: %s snapshot %s: %w", verb, path, err)
	}
	return got, nil
}

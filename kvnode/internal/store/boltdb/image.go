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

// newImage returns an image of db, which calls done when it is closed.
func newImage(db *bbolt.DB, done func() error) (*image, error) {
	tx, err := db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &image{tx, sync.OnceValue(func() error { return errors.Join(tx.Rollback(), done()) })}, nil
}

// openImage opens a snapshot's file for reading.
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
		// No meta at all would pass for an empty database.
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

// staged is a snapshot's file, open for writing.
type staged struct {
	*image
	to   *backend
	path string
	db   *bbolt.DB // nil once it is the backend's
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
	// The old file is gone already; an error of closing it changes nothing.
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

// compactBatch is how many bytes of records a defragmentation holds in memory.
const compactBatch = 4 << 20

func (b *backend) Defragment() error {
	if err := b.failed(); err != nil {
		return err
	}
	part := defragName(b.path)
	// What one has left that found no room takes the room of the next.
	defer func() { _ = os.Remove(part) }() // gone if it was renamed
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

// compactInto makes a database of what is in use, and returns it when it is durable.
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

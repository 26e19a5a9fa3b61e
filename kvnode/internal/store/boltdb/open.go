package boltdb

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/leaderlease/go/kvnode/internal/store"
)

var (
	metaBucket   = []byte("meta")
	recordBucket = []byte("key")

	formatKey = []byte("kvnode-format") // in meta: a decimal number
	stateKey  = []byte("state")         // in meta: see store's meta
)

// layout is the number under formatKey. It describes the buckets. The format of records and state
// is independent of it (store.ClusterVersionFirst).
const layout = 1

// mapSize is the address space reserved for a database. If the database outgrows it, bbolt remaps,
// and the checkpoint that does so waits for open snapshots. Address space is free, except on 32-bit
// machines.
const mapSize = 10 << 30 * (strconv.IntSize >> 6)

// growStep is the smallest growth of a file.
const growStep = 1 << 20

// lockTimeout is how long Open waits for another process to unlock the file.
const lockTimeout = time.Second

func openDB(path string, readOnly bool) (db *bbolt.DB, err error) {
	opts := &bbolt.Options{
		Timeout:        lockTimeout,
		ReadOnly:       readOnly,
		NoFreelistSync: true, // rebuilt when the file is opened
		FreelistType:   bbolt.FreelistMapType,
	}
	if !readOnly {
		opts.InitialMmapSize = mapSize
	}
	err = Guard(func() error {
		if db, err = bbolt.Open(path, 0o600, opts); err == nil {
			db.AllocSize = growStep
		}
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("another process has held its lock for %v", lockTimeout)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %w", store.ErrForeign, err)
	case errors.Is(err, bolterrors.ErrChecksum):
		return nil, fmt.Errorf("%w: %w", store.ErrDamaged, err)
	default:
		return db, err
	}
}

// openChecked opens an existing database for writing after checking its format and its pages.
// Damaged records are found when they are loaded.
func openChecked(path string) (*bbolt.DB, error) {
	db, err := OpenAny(path)
	if err != nil {
		return nil, err
	}
	err = Guard(func() error {
		return db.View(func(tx *bbolt.Tx) error { return checkFormat(tx, path) })
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return openDB(path, false)
}

// OpenAny opens any bbolt database for reading, and checks that the references between all pages in
// use are consistent. So a read cannot run in circles, but may still fault: run it in Guard.
func OpenAny(path string) (*bbolt.DB, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%w: it is a directory", store.ErrForeign)
	case info.Size() == 0:
		return nil, fmt.Errorf("%w: it is empty", store.ErrForeign)
	}
	db, err := openDB(path, true)
	if err != nil {
		return nil, err
	}
	if err := Guard(func() error { return checkPages(path, db.Info().PageSize) }); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// checkFormat checks the size of the file, its buckets and its layout, and no records.
func checkFormat(tx *bbolt.Tx, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("%w: it has %d bytes, want at least %d", store.ErrDamaged, info.Size(), tx.Size())
	}
	meta := tx.Bucket(metaBucket)
	if meta == nil || tx.Bucket(recordBucket) == nil || meta.Get(formatKey) == nil {
		return store.ErrForeign
	}
	if got := string(meta.Get(formatKey)); got != strconv.Itoa(layout) {
		return fmt.Errorf("%w: it is %q, and this version reads %d (use the version that wrote it)", store.ErrFormat, got, layout)
	}
	return nil
}

func initBuckets(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucket(recordBucket); err != nil {
		return err
	}
	return meta.Put(formatKey, []byte(strconv.Itoa(layout)))
}

// Guard runs fn and converts panics and page faults, which bbolt gets from damaged files, to
// store.ErrDamaged.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", store.ErrDamaged, p)
		}
	}()
	return fn()
}

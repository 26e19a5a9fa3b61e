package boltdb

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// openNew creates a database that is closed after the test.
func openNew(t *testing.T) store.Backend {
	t.Helper()
	b, err := Open(filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// A closed image has no records, and no pages to drop.
func TestAnImageThatWasClosedIsNotRead(t *testing.T) {
	img, err := openNew(t).View()
	if err != nil {
		t.Fatal(err)
	}
	if err := img.Close(); err != nil {
		t.Fatal(err)
	}
	if err := img.Records(func(_, _ []byte) error { return nil }); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("Records() of an image that is closed = %v, want %v", err, store.ErrDamaged)
	}
}

// each is how many records a round rewrites. It adds one more.
const each = 50

func writeRound(b store.Backend, round byte) error {
	return b.Update(func(tx store.Tx) (err error) {
		for i := range each {
			err = errors.Join(err, tx.SetRecord([]byte{byte(i)}, bytes.Repeat([]byte{round}, 4<<10)))
		}
		return errors.Join(err, tx.SetRecord([]byte{each, round}, bytes.Repeat([]byte{round}, int(round)<<12)))
	})
}

// readRound checks that the records belong to one round.
func readRound(b store.Backend) error {
	img, err := b.View()
	if err != nil {
		return err
	}
	round, n := byte(0), 0
	err = img.Records(func(key, value []byte) error {
		if n++; n == 1 {
			round = value[0]
		}
		want := round
		if key[0] == each {
			want = key[1]
		}
		if bytes.Count(value, []byte{want}) != len(value) {
			return fmt.Errorf("record %x holds %x, want %x", key, value[:min(len(value), 8)], want)
		}
		return nil
	})
	if err == nil && n != each+1+int(round) {
		err = fmt.Errorf("%d records after round %d", n, round)
	}
	return errors.Join(err, img.Close())
}

// Pages leave the resident memory while other readers use them, and while commits write and the
// file grows: each image has the complete records of one commit.
func TestOthersReadWhatLeavesTheMemory(t *testing.T) {
	b := openNew(t)
	if err := writeRound(b, 0); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for last := false; !last; {
				last = stop.Load() // at least once
				if err := readRound(b); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for round := range byte(15) {
		if err := writeRound(b, round); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	readers.Wait()
}

// Size is as of the last commit and allocates nothing, because each write of the store calls it.
func TestSizeIsThatOfTheLastCommit(t *testing.T) {
	opened, err := Open(filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := opened.(*backend)
	t.Cleanup(func() { _ = b.Close() })
	want := func(when string) {
		t.Helper()
		var total, free int64
		db := b.mu.file.db
		_ = db.View(func(tx *bbolt.Tx) error {
			total, free = tx.Size(), int64(db.Stats().FreePageN+db.Stats().PendingPageN)*int64(db.Info().PageSize)
			return nil
		})
		if got, inUse := b.Size(); got != total || inUse != total-free || total == 0 {
			t.Errorf("%s the size is %d with %d in use, want %d and %d", when, got, inUse, total, total-free)
		}
	}
	want("at first")
	for _, n := range []int{1000, 0} {
		err := b.Update(func(tx store.Tx) error {
			for i := range 1000 {
				key := []byte{byte(i >> 8), byte(i)}
				if i >= n {
					if err := tx.DeleteRecord(key); err != nil {
						return err
					}
				} else if err := tx.SetRecord(key, make([]byte, 1000)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want("after a commit")
	}
	if n := testing.AllocsPerRun(100, func() { b.Size() }); n != 0 {
		t.Errorf("Size() allocates %v times, want 0", n)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if total, inUse := b.Size(); total != 0 || inUse != 0 {
		t.Errorf("of a database that is closed the size is %d, %d", total, inUse)
	}
}

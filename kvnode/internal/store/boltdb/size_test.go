package boltdb

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Each write asks how large the database is, so that costs nothing, and it is as of the last
// commit all the same.
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

package boltdb

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/leaderlease/go/kvnode/store"
)

// filled makes a database with records that hold zeros, and returns its pages.
func filled(t *testing.T, path string) []byte {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(func(tx store.Tx) error {
		for i := range 200 {
			if err := tx.SetRecord([]byte{byte(i)}, make([]byte, 200)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// One bit makes a bucket of a record. Taken for one, a record of zeros is its own first
// page: bbolt would go down for ever, and take memory for each step.
func TestARecordThatSaysItIsABucketIsDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	data := filled(t, path)
	flipped, size := 0, os.Getpagesize()
	for at := 2 * size; at+size <= len(data); at += size {
		if order.Uint16(data[at+8:]) != leafPage || order.Uint16(data[at+10:]) < 10 {
			continue // no page of records
		}
		data[at+pageHead] ^= bucketLeaf
		flipped++
	}
	if err := os.WriteFile(path, data, 0o600); err != nil || flipped == 0 {
		t.Fatalf("%d pages changed, %v, want some", flipped, err)
	}
	if b, err := Open(path); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("Open = %v, %v, want %v", b, err, store.ErrDamaged)
	}
}

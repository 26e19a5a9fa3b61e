package boltdb

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/leaderlease/go/kvnode/store"
)

// filled makes a database with records that all hold value, and returns its pages.
func filled(t *testing.T, path string, value []byte) []byte {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(func(tx store.Tx) error {
		for i := range 200 {
			if err := tx.SetRecord([]byte{byte(i)}, value); err != nil {
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
	empty := make([]byte, 200)
	empty[bucketHead+8] = leafPage
	for name, value := range map[string][]byte{"zeros": make([]byte, 200), "an empty page": empty} {
		path := filepath.Join(t.TempDir(), "db")
		data := filled(t, path, value)
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
			t.Errorf("Open with a record of %s that is a bucket = %v, %v, want %v", name, b, err, store.ErrDamaged)
		}
	}
}

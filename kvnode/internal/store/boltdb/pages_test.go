package boltdb

import (
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// filled makes a database in which all records have the same value, and returns its pages.
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

// One flipped bit makes a record a bucket. A record of zeros would then be its own first page, and
// bbolt would recurse for ever.
func TestARecordThatSaysItIsABucketIsDamage(t *testing.T) {
	empty := make([]byte, 200)
	empty[bucketHead+8] = leafPage
	for name, value := range map[string][]byte{"zeros": make([]byte, 200), "an empty page": empty} {
		path := filepath.Join(t.TempDir(), "db")
		data := filled(t, path, value)
		flipped, size := 0, os.Getpagesize()
		for at := 2 * size; at+size <= len(data); at += size {
			if order.Uint16(data[at+8:]) != leafPage || order.Uint16(data[at+10:]) < 10 {
				continue // not a page of records
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

// A file of branches with one element each is a tree as deep as the file is long. A walk must not
// recurse that deep.
func TestADeepTreeIsDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	data := filled(t, path, []byte("v"))
	size := os.Getpagesize()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, at, err := newestMeta(f, int64(size))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		branches int
		deep     bool
	}{{maxDepth - 3, false}, {maxDepth + 1, true}} {
		deep := append([]byte(nil), data...)
		deep = deep[:len(deep)/size*size]
		meta := deep[at+pageHead:][:metaSize]
		next, used := order.Uint64(meta[16:]), uint64(len(deep)/size) // root and number of pages
		for range test.branches {
			page := make([]byte, size)
			order.PutUint64(page, used)
			order.PutUint16(page[8:], branchPage)
			order.PutUint16(page[10:], 1)
			order.PutUint32(page[pageHead:], elementSize) // an empty key after the element
			order.PutUint64(page[pageHead+8:], next)
			deep, next, used = append(deep, page...), used, used+1
		}
		meta = deep[at+pageHead:][:metaSize]
		order.PutUint64(meta[16:], next)
		order.PutUint64(meta[40:], used)
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:metaSize-8]) // never fails
		order.PutUint64(meta[metaSize-8:], sum.Sum64())
		if err := os.WriteFile(path, deep, 0o600); err != nil {
			t.Fatal(err)
		}
		err := checkPages(path, size)
		if errors.Is(err, store.ErrDamaged) != test.deep || err != nil && !test.deep {
			t.Errorf("checkPages() of %d branches above the root = %v, want it damaged: %v", test.branches, err, test.deep)
		}
	}
}

func TestTinyPagesAreDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	filled(t, path, []byte("v"))
	if err := checkPages(path, 96); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("checkPages() of pages of 96 bytes = %v, want %v", err, store.ErrDamaged)
	}
}

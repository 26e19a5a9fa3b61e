package boltfence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/leaderlease/go/leaderlease/fence"
)

const bucket = "fence"

var (
	older = fence.Token{Term: 4, Index: 120}
	newer = fence.Token{Term: 5, Index: 133}
)

func open(t *testing.T, path string) (*bbolt.DB, *Gate) {
	t.Helper()
	// Durability is bbolt's own matter; without fsync the tests are fast.
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	g, err := New(db, bucket)
	if err != nil {
		t.Fatal(err)
	}
	return db, g
}

func openNew(t *testing.T) (*bbolt.DB, *Gate) {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "data.db"))
}

// put is a write of the caller, beside the gate's own bucket.
func put(key, value string) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("data"))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte(value))
	}
}

func content(t *testing.T, db *bbolt.DB, key string) string {
	t.Helper()
	var value string
	err := db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte("data")); b != nil {
			value = string(b.Get([]byte(key)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func wantHighest(t *testing.T, g *Gate, resource string, want fence.Token) {
	t.Helper()
	if got, err := g.Highest(resource); got != want || err != nil {
		t.Errorf("Highest(%q) = %v, %v, want %v", resource, got, err, want)
	}
}

func TestUpdateBoundaries(t *testing.T) {
	tests := []struct {
		name  string
		token fence.Token
		want  error
	}{
		{"zero is never admitted", fence.Token{}, fence.ErrZeroToken},
		{"older term", older, fence.ErrStale},
		{"one index below", fence.Token{Term: 5, Index: 132}, fence.ErrStale},
		{"the same holder writes again", newer, nil},
		{"one index above", fence.Token{Term: 5, Index: 134}, nil},
		{"newer term", fence.Token{Term: 6}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			db, g := openNew(t)
			if err := g.Update("job", newer, put("job", "before")); err != nil {
				t.Fatal(err)
			}
			err := g.Update("job", tc.token, put("job", "after"))
			if !errors.Is(err, tc.want) {
				t.Errorf("Update(%v) = %v, want %v", tc.token, err, tc.want)
			}
			wantToken, wantContent := tc.token, "after"
			if tc.want != nil {
				wantToken, wantContent = newer, "before"
			}
			wantHighest(t, g, "job", wantToken)
			if got := content(t, db, "job"); got != wantContent {
				t.Errorf("content after Update(%v) = %q, want %q", tc.token, got, wantContent)
			}
		})
	}
}

func TestFirstTokenOfAResource(t *testing.T) {
	_, g := openNew(t)
	wantHighest(t, g, "job", fence.Token{})
	if err := g.Update("job", fence.Token{}, nil); !errors.Is(err, fence.ErrZeroToken) {
		t.Errorf("Update(zero) = %v, want ErrZeroToken", err)
	}
	wantHighest(t, g, "job", fence.Token{})
	if err := g.Update("job", fence.Token{Index: 1}, nil); err != nil {
		t.Errorf("Update(0.1) = %v, want nil", err)
	}
	wantHighest(t, g, "job", fence.Token{Index: 1})
}

func TestNilWriteShutsOlderHoldersOut(t *testing.T) {
	_, g := openNew(t)
	if err := g.Update("job", newer, nil); err != nil {
		t.Fatal(err)
	}
	err := g.Update("job", older, put("job", "late"))
	if stale, ok := errors.AsType[*fence.StaleError](err); !ok || *stale != (fence.StaleError{Token: older, Highest: newer}) {
		t.Errorf("Update(%v) = %v, want a StaleError with both tokens", older, err)
	}
}

func TestResourcesAndBucketsAreApart(t *testing.T) {
	db, g := openNew(t)
	if err := g.Update("a", newer, nil); err != nil {
		t.Fatal(err)
	}
	if err := g.Update("b", older, nil); err != nil {
		t.Errorf("Update(b, %v) = %v, want nil: only a has seen %v", older, err, newer)
	}
	other, err := New(db, "other")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Update("a", older, nil); err != nil {
		t.Errorf("Update(a, %v) in another bucket = %v, want nil", older, err)
	}
	same, err := New(db, bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := same.Update("a", older, nil); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Update(a, %v) by a second gate on the bucket = %v, want ErrStale", older, err)
	}
}

func TestResourceNames(t *testing.T) {
	tests := []struct {
		name, resource string
		want           error
	}{
		{"empty", "", ErrResource},
		{"one byte", "x", nil},
		{"not text", "\x00\xff", nil},
		{"longest", strings.Repeat("x", MaxResourceLen), nil},
		{"one byte too long", strings.Repeat("x", MaxResourceLen+1), ErrResource},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, g := openNew(t)
			if err := g.Update(tc.resource, newer, nil); !errors.Is(err, tc.want) {
				t.Errorf("Update() = %v, want %v", err, tc.want)
			}
			if _, err := g.Highest(tc.resource); !errors.Is(err, tc.want) {
				t.Errorf("Highest() = %v, want %v", err, tc.want)
			}
		})
	}
}

// All of it or nothing: neither the write nor the token of a failed Update is
// stored, so an older holder is where it was before.
func TestFailedWriteStoresNothing(t *testing.T) {
	failure := errors.New("no such account")
	tests := []struct {
		name string
		fn   func(*bbolt.Tx) error
		want error
	}{
		{"an error after the write", func(tx *bbolt.Tx) error {
			return errors.Join(put("job", "half")(tx), failure)
		}, failure},
		{"the write deletes the gate's bucket", func(tx *bbolt.Tx) error {
			return errors.Join(put("job", "half")(tx), tx.DeleteBucket([]byte(bucket)))
		}, ErrCorrupt},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			db, g := openNew(t)
			if err := g.Update("job", older, put("job", "whole")); err != nil {
				t.Fatal(err)
			}
			if err := g.Update("job", newer, tc.fn); !errors.Is(err, tc.want) {
				t.Errorf("Update() = %v, want %v", err, tc.want)
			}
			wantHighest(t, g, "job", older)
			if got := content(t, db, "job"); got != "whole" {
				t.Errorf("content = %q, want %q", got, "whole")
			}
		})
	}
}

func TestPanickingWriteStoresNothing(t *testing.T) {
	db, g := openNew(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Update() swallowed the panic of the write")
			}
		}()
		_ = g.Update("job", newer, func(tx *bbolt.Tx) error {
			panic(put("job", "half")(tx))
		})
	}()
	wantHighest(t, g, "job", fence.Token{})
	if got := content(t, db, "job"); got != "" {
		t.Errorf("content = %q, want none", got)
	}
}

// The stored token is the token that Update checked, whatever the write does to
// the gate's bucket.
func TestWriteCannotLowerTheToken(t *testing.T) {
	_, g := openNew(t)
	err := g.Update("job", newer, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).Put([]byte("job"), encode("job", older))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantHighest(t, g, "job", newer)
}

func TestConcurrentUpdatesLandInTokenOrder(t *testing.T) {
	const writers, writes = 4, 50
	_, g := openNew(t)
	var landed []fence.Token // guarded by bbolt's single writer
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range writes {
				tok := fence.Token{Term: 1 + uint64(i/10), Index: uint64(1 + (i*7+w*3)%10)}
				err := g.Update("job", tok, func(*bbolt.Tx) error {
					landed = append(landed, tok)
					return nil
				})
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Errorf("Update(%v) = %v, want nil or ErrStale", tok, err)
				}
			}
		})
	}
	wg.Wait()
	if !slices.IsSortedFunc(landed, fence.Token.Compare) {
		t.Errorf("writes landed out of token order: %v", landed)
	}
	if n := len(landed); n == 0 || n == writers*writes {
		t.Errorf("%d of %d writes landed, want some admitted and some refused", n, writers*writes)
	}
}

func TestNewRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(db, ""); !errors.Is(err, berrors.ErrBucketNameRequired) {
		t.Errorf("New() without a bucket name = %v, want ErrBucketNameRequired", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := New(db, bucket); !errors.Is(err, berrors.ErrDatabaseNotOpen) {
		t.Errorf("New() on a closed database = %v, want ErrDatabaseNotOpen", err)
	}
}

// resum gives a damaged record a checksum that matches.
func resum(resource string, record []byte) []byte {
	body := record[:len(record)-4]
	return binary.BigEndian.AppendUint32(bytes.Clone(body), checksum(resource, body))
}

func TestDamagedTokenRefusesEveryToken(t *testing.T) {
	good := encode("job", newer)
	future := bytes.Clone(good)
	future[0]++
	tests := []struct {
		name  string
		value []byte
	}{
		{"empty", []byte{}},
		{"cut short", good[:recordSize-1]},
		{"one byte more", append(bytes.Clone(good), 0)},
		{"all zero", make([]byte, recordSize)},
		{"bare token", good[1 : 1+fence.TokenSize]},
		{"record of another resource", encode("other", newer)},
		{"later version", resum("job", future)},
		{"zero token with a good checksum", encode("job", fence.Token{})},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			db, g := openNew(t)
			err := db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte(bucket)).Put([]byte("job"), tc.value)
			})
			if err != nil {
				t.Fatal(err)
			}
			wantRefused(t, db, g, ErrCorrupt)
		})
	}

	t.Run("nested bucket in its place", func(t *testing.T) {
		db, g := openNew(t)
		err := db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.Bucket([]byte(bucket)).CreateBucket([]byte("job"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		wantRefused(t, db, g, ErrCorrupt)
	})

	t.Run("bucket deleted", func(t *testing.T) {
		db, g := openNew(t)
		if err := db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucket)) }); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, db, g, ErrCorrupt)
	})
}

func wantRefused(t *testing.T, db *bbolt.DB, g *Gate, want error) {
	t.Helper()
	for _, tok := range []fence.Token{{}, older, newer, {Term: ^uint64(0), Index: ^uint64(0)}} {
		if err := g.Update("job", tok, put("job", "unfenced")); !errors.Is(err, want) {
			t.Errorf("Update(%v) = %v, want %v", tok, err, want)
		}
	}
	if tok, err := g.Highest("job"); !errors.Is(err, want) || !tok.IsZero() {
		t.Errorf("Highest() = %v, %v, want %v", tok, err, want)
	}
	if got := content(t, db, "job"); got != "" {
		t.Errorf("content = %q, want none: the write must not run", got)
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	good := encode("job", newer)
	if tok, err := decode("job", good); tok != newer || err != nil {
		t.Fatalf("decode(encode(%v)) = %v, %v", newer, tok, err)
	}
	for bit := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		if tok, err := decode("job", bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("decode() with bit %d flipped = %v, %v, want ErrCorrupt", bit, tok, err)
		}
	}
}

// FuzzDecodeAcceptsItsOwnRecordsOnly: stored bytes are exactly what encode
// writes for a token, or are refused by name.
func FuzzDecodeAcceptsItsOwnRecordsOnly(f *testing.F) {
	for _, s := range []struct {
		about, text, data string
		flag              bool
	}{
		{"bad sum", "job", "\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x85....", false},
		{"empty", "job", "", false},
		{"later version", "job", "\x02\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x85....", true},
		{"one byte more", "job", "\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x85.....", true},
		{"short", "job", "\x01", true},
		{"token", "job", "\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x85....", true},
		{"zero token", "job", "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00....", true},
	} {
		f.Add(s.text, []byte(s.data), s.flag)
	}
	f.Fuzz(func(t *testing.T, resource string, value []byte, fixSum bool) {
		// A fuzzer does not find a checksum by chance, so it may ask for one.
		if fixSum && len(value) >= 4 {
			value = resum(resource, value)
		}
		tok, err := decode(resource, value)
		switch {
		case err == nil && !bytes.Equal(encode(resource, tok), value):
			t.Errorf("decode(%x) = %v, which encode writes as %x", value, tok, encode(resource, tok))
		case err == nil && tok.IsZero():
			t.Errorf("decode(%x) = the zero token, want a refusal", value)
		case err != nil && (!errors.Is(err, ErrCorrupt) || !tok.IsZero()):
			t.Errorf("decode(%x) = %v, %v, want ErrCorrupt and no token", value, tok, err)
		}
	})
}

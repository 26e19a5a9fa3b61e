package boltfence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/leaderlease/fence"
)

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

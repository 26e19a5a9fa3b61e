package boltfence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/leaderlease/fence"
)

// MaxResourceLen is the length of the longest resource name in bytes. It keeps
// a key well below a page; bbolt's own limit is 32 KiB.
const MaxResourceLen = 1024

// ErrResource is returned for a resource name that is empty or longer than
// [MaxResourceLen]. Match it with errors.Is.
var ErrResource = errors.New("boltfence: invalid resource name")

// ErrCorrupt is returned when the stored token of a resource is damaged or
// cannot be where it was. The resource then refuses every token, because what
// has been admitted before is unknown. Match it with errors.Is.
var ErrCorrupt = errors.New("boltfence: stored token is corrupt")

// Gate keeps the highest token of each resource in one bucket of a bbolt
// database. It is safe for concurrent use, as the database is. Several gates
// on the same bucket of the same database are one fence.
type Gate struct {
	db     *bbolt.DB
	bucket []byte
}

// New returns a Gate that keeps its tokens in the named bucket at the top
// level of db, and creates the bucket if it is missing. The bucket belongs to
// the gate alone: nothing else may write to it. The database stays the
// caller's to close.
func New(db *bbolt.DB, bucket string) (*Gate, error) {
	g := &Gate{db: db, bucket: []byte(bucket)}
	err := db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(g.bucket)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("boltfence: create bucket %q: %w", bucket, err)
	}
	return g, nil
}

// Update checks t against the highest token stored for resource, runs fn, and
// stores t as the highest token, all in one read-write transaction. A nil fn
// only raises the stored token.
//
// It fails without running fn if the name is no good ([ErrResource]), if t is
// zero ([fence.ErrZeroToken]), if the stored token is damaged ([ErrCorrupt]),
// or if t has been overtaken ([fence.ErrStale], with a [*fence.StaleError]).
// If fn fails or panics, nothing is stored at all, neither its write nor t.
// An error of the commit itself leaves the outcome to bbolt, but the write and
// t then share it.
//
// bbolt runs one such transaction at a time: fn must not begin another, and
// should be short. It must not touch the gate's bucket.
func (g *Gate) Update(resource string, t fence.Token, fn func(*bbolt.Tx) error) error {
	if err := checkName(resource); err != nil {
		return err
	}
	err := g.db.Update(func(tx *bbolt.Tx) error {
		highest, err := g.highest(tx, resource)
		if err != nil {
			return err
		}
		if err := fence.Check(t, highest); err != nil {
			return err
		}
		if fn != nil {
			if err := fn(tx); err != nil {
				return err
			}
		}
		// The bucket is looked up again: fn has had the transaction in hand.
		b := tx.Bucket(g.bucket)
		if b == nil {
			return fmt.Errorf("%w: the write deleted bucket %q", ErrCorrupt, g.bucket)
		}
		return b.Put([]byte(resource), encode(resource, t))
	})
	if err != nil {
		return fmt.Errorf("boltfence: update %q: %w", resource, err)
	}
	return nil
}

// Highest returns the highest token stored for resource, zero if there is
// none. It is for display; a decision made on it is made too late.
func (g *Gate) Highest(resource string) (fence.Token, error) {
	if err := checkName(resource); err != nil {
		return fence.Token{}, err
	}
	var t fence.Token
	err := g.db.View(func(tx *bbolt.Tx) error {
		var err error
		t, err = g.highest(tx, resource)
		return err
	})
	if err != nil {
		return fence.Token{}, fmt.Errorf("boltfence: highest token of %q: %w", resource, err)
	}
	return t, nil
}

// highest tells "nothing stored yet" from everything that looks like it: a
// missing bucket, a nested bucket and an empty value are refused.
func (g *Gate) highest(tx *bbolt.Tx, resource string) (fence.Token, error) {
	b := tx.Bucket(g.bucket)
	if b == nil {
		return fence.Token{}, fmt.Errorf("%w: bucket %q is gone", ErrCorrupt, g.bucket)
	}
	key := []byte(resource)
	value := b.Get(key)
	switch {
	case value != nil:
		return decode(resource, value)
	case b.Bucket(key) != nil:
		return fence.Token{}, fmt.Errorf("%w: a bucket is in its place", ErrCorrupt)
	default:
		return fence.Token{}, nil
	}
}

func checkName(resource string) error {
	switch {
	case resource == "":
		return fmt.Errorf("%w: it is empty", ErrResource)
	case len(resource) > MaxResourceLen:
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrResource, len(resource), MaxResourceLen)
	default:
		return nil
	}
}

// A stored token is a version byte, the token's binary form and a CRC-32C over
// the resource name and all bytes before. bbolt has no checksum on data pages,
// and one flipped bit could lower the token and let a fenced-off holder in.
const (
	recordVersion = 1
	recordSize    = 1 + fence.TokenSize + crc32.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(resource string, t fence.Token) []byte {
	b := make([]byte, 0, recordSize)
	b = append(b, recordVersion)
	b, _ = t.AppendBinary(b) // never fails
	return binary.BigEndian.AppendUint32(b, checksum(resource, b))
}

// decode returns the token, or an error that matches [ErrCorrupt]. A zero
// token is never stored, so it is damage too.
func decode(resource string, value []byte) (fence.Token, error) {
	if len(value) != recordSize {
		return fence.Token{}, fmt.Errorf("%w: %d bytes, want %d", ErrCorrupt, len(value), recordSize)
	}
	body, sum := value[:recordSize-crc32.Size], binary.BigEndian.Uint32(value[recordSize-crc32.Size:])
	if got := checksum(resource, body); got != sum {
		return fence.Token{}, fmt.Errorf("%w: checksum %08x, computed %08x", ErrCorrupt, sum, got)
	}
	if body[0] != recordVersion {
		return fence.Token{}, fmt.Errorf("%w: version %d, this build reads %d", ErrCorrupt, body[0], recordVersion)
	}
	var t fence.Token
	if err := t.UnmarshalBinary(body[1:]); err != nil {
		return fence.Token{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if t.IsZero() {
		return fence.Token{}, fmt.Errorf("%w: it is zero", ErrCorrupt)
	}
	return t, nil
}

func checksum(resource string, body []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(resource), castagnoli), castagnoli, body)
}

package storetest

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Contents are what a disk holds at one moment. They are replaced, never changed. The zero
// value is what an empty disk holds.
type Contents struct {
	meta    []byte
	records map[string][]byte
}

// Torn returns what is left of a disk whose newest durable contents were written over
// by a commit that never became durable: its meta is damaged.
func Torn() *Contents { return &Contents{meta: []byte{}} }

// Image returns the contents as a store reads them.
func (c *Contents) Image() store.Image { return image{c} }

// Change returns what fn makes of the contents. Each of its steps fails with what step
// returns.
func (c *Contents) Change(fn func(tx store.Tx) error, step func() error) (*Contents, error) {
	next := &Contents{c.meta, make(map[string][]byte, len(c.records))}
	maps.Copy(next.records, c.records)
	return next, fn(&tx{next, step})
}

type tx struct {
	next *Contents
	step func() error
}

func (t *tx) Meta() []byte             { return t.next.meta }
func (t *tx) Record(key []byte) []byte { return t.next.records[string(key)] }

func (t *tx) SetMeta(meta []byte) error {
	t.next.meta = slices.Clone(meta)
	return t.step()
}

func (t *tx) SetRecord(key, value []byte) error {
	t.next.records[string(key)] = slices.Clone(value)
	return t.step()
}

func (t *tx) DeleteRecord(key []byte) error {
	delete(t.next.records, string(key))
	return t.step()
}

type image struct{ *Contents }

func (i image) Meta() []byte { return i.meta }
func (i image) Size() int64  { return int64(len(i.encode())) }
func (i image) Close() error { return nil }

func (i image) Records(fn func(key, value []byte) error) error {
	for _, key := range slices.Sorted(maps.Keys(i.records)) {
		if err := fn([]byte(key), i.records[key]); err != nil {
			return err
		}
	}
	return nil
}

func (i image) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(i.encode())
	return int64(n), err
}

// encode writes the meta value and the records, each after its length. There is no checksum
// but the store's own: whoever damages a snapshot sees what that finds.
func (c *Contents) encode() []byte {
	var b []byte
	put := func(p []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	put(c.meta)
	for _, key := range slices.Sorted(maps.Keys(c.records)) {
		put([]byte(key))
		put(c.records[key])
	}
	return b
}

// Decode is the reverse of what WriteTo of an Image writes.
func Decode(b []byte) (*Contents, error) {
	var parts [][]byte
	for len(b) > 0 {
		if len(b) < 4 || uint32(len(b)-4) < binary.BigEndian.Uint32(b) {
			return nil, fmt.Errorf("%w: it ends within part %d", store.ErrDamaged, len(parts))
		}
		n := 4 + int(binary.BigEndian.Uint32(b))
		parts = append(parts, b[4:n])
		b = b[n:]
	}
	if len(parts)%2 != 1 {
		return nil, fmt.Errorf("%w: it has %d parts", store.ErrDamaged, len(parts))
	}
	c := &Contents{records: make(map[string][]byte)}
	if len(parts[0]) > 0 { // else nothing was committed yet
		c.meta = parts[0]
	}
	for i := 1; i < len(parts); i += 2 {
		c.records[string(parts[i])] = parts[i+1]
	}
	return c, nil
}

package storesim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/leaderlease/go/kvnode/store"
)

// errCommit is what a commit fails with now and then.
var errCommit = errors.New("storesim: commit failed")

// failOneIn says how seldom a commit or an installation fails, failAgainOneIn how
// seldom one after that.
const (
	failOneIn      = 8
	failAgainOneIn = 2
)

// trouble is a disk's. What fails once is likely to fail again.
type trouble struct {
	random *rand.Rand
	failed bool
}

// comes reports whether the next commit fails.
func (t *trouble) comes() bool {
	n := failOneIn
	if t.failed {
		n = failAgainOneIn
	}
	t.failed = t.random.IntN(n) == 0
	return t.failed
}

// memoryDisk is a disk in memory. A commit that fails may have taken effect: for
// this process, for the next one, for the one after a power failure, or not. That
// is what a failed sync leaves of a file that is mapped into memory, and a process
// that ends between a write and its sync.
type memoryDisk struct {
	seen    *content // by this process
	cached  *content // by the next one, if no more than this process ends
	durable *content // by the next one, if the power fails
	files   map[string][]byte

	trouble
	stats *Stats
	// begun says that the process has come through its start: it ends if a
	// Settle fails there.
	begun  bool
	closed bool
}

// content is never changed, only replaced.
type content struct {
	meta    []byte
	records map[string][]byte
}

// torn is a database whose pages were overwritten while it was the newest on the
// disk. Its meta is damaged.
var torn = &content{meta: []byte{}}

func newMemoryDisk(random *rand.Rand, stats *Stats) *memoryDisk {
	empty := &content{}
	return &memoryDisk{
		seen: empty, cached: empty, durable: empty,
		files: make(map[string][]byte), trouble: trouble{random: random}, stats: stats,
	}
}

// arrive implements disk.
func (d *memoryDisk) arrive(data []byte) (string, error) {
	d.files["incoming"] = data
	return "incoming", nil
}

// reopen implements disk. The last process cannot change anything any more.
func (d *memoryDisk) reopen(powerFails bool) (disk, error) {
	d.closed = true
	found := d.cached
	if powerFails {
		found = d.durable
	}
	if found != d.durable {
		d.stats.Unsettled++
	}
	return &memoryDisk{
		seen: found, cached: found, durable: d.durable,
		files: make(map[string][]byte), trouble: trouble{random: d.random}, stats: d.stats,
	}, nil
}

var errClosed = errors.New("storesim: disk of a process that has ended")

// Settle implements store.Backend.
func (d *memoryDisk) Settle() error {
	switch {
	case d.closed:
		return errClosed
	case d.begun && d.comes():
		return errCommit
	}
	d.begun = true
	d.cached, d.durable = d.seen, d.seen
	return nil
}

// commit replaces what the disk holds by c, or fails.
func (d *memoryDisk) commit(c *content) error {
	if d.closed {
		return errClosed
	}
	if !d.comes() {
		d.seen, d.cached, d.durable = c, c, c
		return nil
	}
	d.stats.Failed++
	for _, layer := range []**content{&d.seen, &d.cached, &d.durable} {
		if d.random.IntN(2) == 0 {
			*layer = c
		}
	}
	return errCommit
}

// View implements store.Backend.
func (d *memoryDisk) View() (store.Image, error) { return image{d.seen}, nil }

// Update implements store.Backend.
func (d *memoryDisk) Update(fn func(tx store.Tx) error) error {
	tx := &tx{&content{meta: d.seen.meta, records: maps.Clone(d.seen.records)}}
	if tx.records == nil {
		tx.records = make(map[string][]byte)
	}
	if err := fn(tx); err != nil {
		return err
	}
	// What it writes goes to pages that are free in what this process sees, not
	// in what is durable.
	if d.seen != d.durable {
		d.durable = torn
	}
	return d.commit(tx.content)
}

// Stage implements store.Backend.
func (d *memoryDisk) Stage(path string) (store.Staged, error) {
	c, err := decode(d.files[path])
	if err != nil {
		return nil, err
	}
	return &staged{image{c}, d, path}, nil
}

// Defragment implements store.Backend.
func (d *memoryDisk) Defragment() error { return nil }

// Size implements store.Backend.
func (d *memoryDisk) Size() (total, inUse int64) {
	n := image{d.seen}.Size()
	return n, n
}

// Close implements store.Backend.
func (d *memoryDisk) Close() error { return nil }

// tx is a store.Tx.
type tx struct{ *content }

func (t *tx) Meta() []byte             { return t.meta }
func (t *tx) Record(key []byte) []byte { return t.records[string(key)] }

func (t *tx) SetMeta(meta []byte) error {
	t.meta = bytes.Clone(meta)
	return nil
}

func (t *tx) SetRecord(key, value []byte) error {
	t.records[string(key)] = bytes.Clone(value)
	return nil
}

func (t *tx) DeleteRecord(key []byte) error {
	delete(t.records, string(key))
	return nil
}

// image is a store.Image.
type image struct{ *content }

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

// encode writes the meta value and the records, each after its length.
func (c *content) encode() []byte {
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

func decode(b []byte) (*content, error) {
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
	c := &content{meta: parts[0], records: make(map[string][]byte)}
	for i := 1; i < len(parts); i += 2 {
		c.records[string(parts[i])] = parts[i+1]
	}
	return c, nil
}

// staged is a store.Staged.
type staged struct {
	image
	d    *memoryDisk
	path string
}

// Install implements store.Staged.
func (s *staged) Install() error {
	delete(s.d.files, s.path)
	return s.d.commit(s.content)
}

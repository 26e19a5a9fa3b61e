// Package storetest has a backend for stores that is kept in memory: what was
// committed survives a crash, what was written and not synced survives the end of
// a process only, and any step can be made to fail. Simulators and tests use it
// instead of bbolt.
package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// ErrCrashed is what a backend returns once another one was opened on its disk.
var ErrCrashed = errors.New("storetest: the process that had the disk open is gone")

// Op is a step that can fail.
type Op string

// The steps of a backend, in the order in which they are taken.
const (
	OpView       Op = "view"
	OpUpdate     Op = "update"     // nothing is written yet
	OpWrite      Op = "write"      // one record is deleted or written, or the meta
	OpCommit     Op = "commit"     // nothing can be read yet
	OpSync       Op = "sync"       // all can be read, also by another process, and nothing is durable
	OpCommitted  Op = "committed"  // all is durable, but nobody knows
	OpSettle     Op = "settle"     // what can be read is about to be made durable
	OpStage      Op = "stage"      // a snapshot's file is about to be read
	OpInstall    Op = "install"    // nothing is replaced yet
	OpInstalled  Op = "installed"  // all is replaced, but nobody knows
	OpDefragment Op = "defragment" // nothing happens here but this step
)

// Disk holds what was committed, and in memory what was not synced. It is safe
// for concurrent use.
type Disk struct {
	mu sync.Mutex
	// Both are replaced, never changed: now is what can be read, durable what a
	// power failure leaves.
	now, durable *Contents
	fail         func(Op) error
	opened       *backend
	commits      int
}

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	empty := &Contents{}
	return &Disk{now: empty, durable: empty}
}

// PowerFailure forgets what is not durable. The backend that is open fails from
// then on.
func (d *Disk) PowerFailure() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.opened = d.durable, nil
}

// Open returns a backend that finds what was committed. The one that was opened
// before fails from then on, as if its process had crashed.
func (d *Disk) Open() store.Backend {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened = &backend{disk: d}
	return d.opened
}

// Copy returns a disk with what a process that began now would find, or with what it would
// find after a power failure.
func (d *Disk) Copy(powerFails bool) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.now
	if powerFails {
		found = d.durable
	}
	return &Disk{now: found, durable: d.durable}
}

// Fail has fail asked before each step; what it returns is the step's error. Nil
// means that nothing fails.
func (d *Disk) Fail(fail func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

// Commits returns how many commits became durable.
func (d *Disk) Commits() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.commits
}

// Records returns how many records the disk holds.
func (d *Disk) Records() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.now.records)
}

// backend is a disk as long as no other is opened.
type backend struct {
	disk *Disk
	// replacing is why a replacement failed when it may have happened: as with a
	// real disk, nothing is committed on top of that. Under the disk's mu.
	replacing error
}

func (b *backend) step(op Op) error {
	b.disk.mu.Lock()
	gone, fail, replacing := b.disk.opened != b, b.disk.fail, b.replacing
	b.disk.mu.Unlock()
	switch {
	case replacing != nil && op != OpView:
		return replacing
	case gone:
		return ErrCrashed
	case fail != nil:
		return fail(op)
	default:
		return nil
	}
}

func (b *backend) contents() *Contents {
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	return b.disk.now
}

// replace makes c durable.
func (b *backend) replace(c *Contents) {
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	b.disk.now, b.disk.durable = c, c
	b.disk.commits++
}

// write makes c what can be read. It goes to what is free in the contents from
// before; what is durable loses by it if that is something else.
func (b *backend) write(c *Contents) {
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	if b.disk.now != b.disk.durable {
		b.disk.durable = Torn()
	}
	b.disk.now = c
}

// Settle implements store.Backend.
func (b *backend) Settle() error {
	if err := b.step(OpSettle); err != nil {
		return err
	}
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	b.disk.durable = b.disk.now
	return nil
}

// View implements store.Backend.
func (b *backend) View() (store.Image, error) {
	if err := b.step(OpView); err != nil {
		return nil, err
	}
	return b.contents().Image(), nil
}

// Update implements store.Backend.
func (b *backend) Update(fn func(tx store.Tx) error) error {
	if err := b.step(OpUpdate); err != nil {
		return err
	}
	next, err := b.contents().Change(fn, func() error { return b.step(OpWrite) })
	if err != nil {
		return err
	}
	if err := b.step(OpCommit); err != nil {
		return err
	}
	b.write(next)
	if err := b.step(OpSync); err != nil {
		return err
	}
	b.replace(next)
	return b.step(OpCommitted)
}

// Defragment implements store.Backend.
func (b *backend) Defragment() error { return b.step(OpDefragment) }

// Size implements store.Backend.
func (b *backend) Size() (total, inUse int64) {
	size := b.contents().Image().Size()
	return size, size
}

// Close implements store.Backend.
func (b *backend) Close() error { return nil }

// Stage implements store.Backend.
func (b *backend) Stage(path string) (store.Staged, error) {
	if err := b.step(OpStage); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := Decode(data)
	if err != nil {
		return nil, err
	}
	return &staged{image{c}, b, path}, nil
}

type staged struct {
	image
	to   *backend
	path string
}

// Install implements store.Staged.
func (s *staged) Install() error {
	if err := s.to.step(OpInstall); err != nil {
		return err
	}
	s.to.replace(s.Contents)
	if err := s.to.step(OpInstalled); err != nil {
		s.to.disk.mu.Lock()
		defer s.to.disk.mu.Unlock()
		s.to.replacing = err
		return err
	}
	return os.Remove(s.path)
}

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

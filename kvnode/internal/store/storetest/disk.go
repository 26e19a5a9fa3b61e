// Package storetest implements store.Backend in memory, for tests. Data survives a crash once it was
// written, and a power failure once it was synced. Each step of an operation can be made to fail.
//
// Its own tests run the cluster simulation of leasetest/sim over real stores, with this backend and
// with bbolt.
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

// ErrCrashed is returned by a backend after a power failure, and after another backend was opened on
// the same disk.
var ErrCrashed = errors.New("storetest: the process that uses this backend has crashed")

// Op is a step of an operation that can fail.
type Op string

// The steps, in the order in which an operation takes them. The comments say what has happened when
// the step fails.
const (
	OpView          Op = "view"
	OpUpdate        Op = "update"         // nothing is written yet
	OpWrite         Op = "write"          // a record or the meta value is written or deleted
	OpCommit        Op = "commit"         // all is written, and no reader sees it
	OpSync          Op = "sync"           // readers and later processes see the commit, but it is not durable
	OpCommitted     Op = "committed"      // the commit is durable, and its caller does not know
	OpEnsureDurable Op = "ensure durable" // visible data is about to be made durable
	OpStage         Op = "stage"          // a snapshot file is about to be read
	OpInstall       Op = "install"        // nothing is replaced yet
	OpInstalled     Op = "installed"      // all is replaced, and the caller does not know
	OpDefragment    Op = "defragment"     // the only step of a defragmentation
)

// Disk keeps data across backends. It is safe for concurrent use.
type Disk struct {
	mu sync.Mutex
	// visible is what readers see, and durable what a power failure leaves. Contents are
	// replaced, never changed.
	visible, durable *contents
	fail             func(Op) error
	opened           *backend
	commits          int
}

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	empty := &contents{}
	return &Disk{visible: empty, durable: empty}
}

// PowerFailure drops what is not durable. The open backend fails from then on.
func (d *Disk) PowerFailure() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visible, d.opened = d.durable, nil
}

// Open returns a new backend. The backend that was opened before fails from then on, as if its
// process had crashed.
func (d *Disk) Open() store.Backend {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened = &backend{disk: d}
	return d.opened
}

// Copy returns a disk with what a new process would find now, or after a power failure.
func (d *Disk) Copy(powerFails bool) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.visible
	if powerFails {
		found = d.durable
	}
	return &Disk{visible: found, durable: d.durable}
}

// Fail sets a function that the backend calls at each step (see Op). If the function returns an error,
// the step fails with it. Nil removes the function.
func (d *Disk) Fail(fail func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

// Commits returns the number of durable commits and installations.
func (d *Disk) Commits() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.commits
}

// Records returns the number of visible records.
func (d *Disk) Records() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.visible.records)
}

// backend is an open disk.
type backend struct {
	disk *Disk
	// replaceErr is the error of an installation that may have happened. As with bbolt, nothing
	// is committed after it. Under the disk's mu.
	replaceErr error
}

func (b *backend) step(op Op) error {
	b.disk.mu.Lock()
	crashed, fail, replaceErr := b.disk.opened != b, b.disk.fail, b.replaceErr
	b.disk.mu.Unlock()
	switch {
	case replaceErr != nil && op != OpView:
		return replaceErr
	case crashed:
		return ErrCrashed
	case fail != nil:
		return fail(op)
	default:
		return nil
	}
}

func (b *backend) contents() *contents {
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	return b.disk.visible
}

// makeDurable replaces what is visible and what is durable by c.
func (b *backend) makeDurable(c *contents) {
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	b.disk.visible, b.disk.durable = c, c
	b.disk.commits++
}

// makeVisible replaces what is visible by c. As with bbolt, the commit overwrites pages that are
// free in the visible data. If the durable data is older, it may use those pages and is torn.
func (b *backend) makeVisible(c *contents) {
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	if b.disk.visible != b.disk.durable {
		b.disk.durable = &contents{meta: []byte{}} // its checksum is missing
	}
	b.disk.visible = c
}

// EnsureDurable implements store.Backend.
func (b *backend) EnsureDurable() error {
	if err := b.step(OpEnsureDurable); err != nil {
		return err
	}
	b.disk.mu.Lock()
	defer b.disk.mu.Unlock()
	b.disk.durable = b.disk.visible
	return nil
}

// View implements store.Backend.
func (b *backend) View() (store.Image, error) {
	if err := b.step(OpView); err != nil {
		return nil, err
	}
	return image{b.contents()}, nil
}

// Update implements store.Backend.
func (b *backend) Update(fn func(tx store.Tx) error) error {
	if err := b.step(OpUpdate); err != nil {
		return err
	}
	was := b.contents()
	next := &contents{was.meta, make(map[string][]byte, len(was.records))}
	maps.Copy(next.records, was.records)
	if err := fn(&tx{b, next}); err != nil {
		return err
	}
	if err := b.step(OpCommit); err != nil {
		return err
	}
	b.makeVisible(next)
	if err := b.step(OpSync); err != nil {
		return err
	}
	b.makeDurable(next)
	return b.step(OpCommitted)
}

// Defragment implements store.Backend.
func (b *backend) Defragment() error { return b.step(OpDefragment) }

// Size implements store.Backend.
func (b *backend) Size() (total, inUse int64) {
	size := image{b.contents()}.Size()
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
	c, err := decode(data)
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
	s.to.makeDurable(s.contents)
	if err := s.to.step(OpInstalled); err != nil {
		s.to.disk.mu.Lock()
		defer s.to.disk.mu.Unlock()
		s.to.replaceErr = err
		return err
	}
	return os.Remove(s.path)
}

// contents is the data of a disk at one moment. It is immutable once it is visible.
type contents struct {
	meta    []byte
	records map[string][]byte
}

type tx struct {
	b    *backend
	next *contents
}

func (t *tx) Meta() []byte             { return t.next.meta }
func (t *tx) Record(key []byte) []byte { return t.next.records[string(key)] }

func (t *tx) SetMeta(meta []byte) error {
	t.next.meta = slices.Clone(meta)
	return t.b.step(OpWrite)
}

func (t *tx) SetRecord(key, value []byte) error {
	t.next.records[string(key)] = slices.Clone(value)
	return t.b.step(OpWrite)
}

func (t *tx) DeleteRecord(key []byte) error {
	delete(t.next.records, string(key))
	return t.b.step(OpWrite)
}

type image struct{ *contents }

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

// encode writes the meta value and the records, each after its length. It adds no checksum, so tests
// that damage a snapshot check the store's own.
func (c *contents) encode() []byte {
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

// decode is the reverse of encode.
func decode(b []byte) (*contents, error) {
	var fields [][]byte
	for len(b) > 0 {
		if len(b) < 4 || uint32(len(b)-4) < binary.BigEndian.Uint32(b) {
			return nil, fmt.Errorf("%w: it ends within field %d", store.ErrDamaged, len(fields))
		}
		n := 4 + int(binary.BigEndian.Uint32(b))
		fields = append(fields, b[4:n])
		b = b[n:]
	}
	if len(fields)%2 != 1 {
		return nil, fmt.Errorf("%w: it has %d fields, want an odd number", store.ErrDamaged, len(fields))
	}
	c := &contents{records: make(map[string][]byte)}
	if len(fields[0]) > 0 { // otherwise nothing was committed yet
		c.meta = fields[0]
	}
	for i := 1; i < len(fields); i += 2 {
		c.records[string(fields[i])] = fields[i+1]
	}
	return c, nil
}

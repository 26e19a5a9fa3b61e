package fs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
)

// sectorSize is the unit that a disk writes atomically.
const sectorSize = 512

// inode is a file without its name. The Memory's lock guards it.
type inode struct {
	// data is the content that the process reads. If shared is set, other inodes or the
	// caller of SetBytes have it, too, and it must be copied before a write.
	data   []byte
	shared bool
	// dirty has the older versions of each sector that was written since the last Sync: as
	// of the Sync, and after each write but the newest. A crash may bring them back. nil is
	// a sector of zeros.
	dirty map[int64][][]byte
	// stuck has the sectors of dirty that a failed Sync has given up. A later Sync makes one
	// durable only if it is written again.
	stuck map[int64][][]byte
	// sizes are the sizes since the last Sync, without the newest.
	sizes []int64
}

func newInode() *inode { return &inode{dirty: map[int64][][]byte{}} }

// sector returns a copy of sector s, or nil beyond the end.
func (n *inode) sector(s int64) []byte {
	if s*sectorSize >= int64(len(n.data)) {
		return nil
	}
	return bytes.Clone(n.data[s*sectorSize : min(int64(len(n.data)), (s+1)*sectorSize)])
}

func (n *inode) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	if n.shared {
		n.data, n.shared = bytes.Clone(n.data), false
	}
	end := off + int64(len(p))
	for s := off / sectorSize; s*sectorSize < end; s++ {
		if old, ok := n.stuck[s]; ok {
			n.dirty[s] = old
			delete(n.stuck, s)
		}
		n.dirty[s] = append(n.dirty[s], n.sector(s))
	}
	if end > int64(len(n.data)) {
		n.sizes = append(n.sizes, int64(len(n.data)))
		if end > int64(cap(n.data)) {
			n.data = append(make([]byte, 0, max(end, 2*int64(cap(n.data)))), n.data...)
		}
		n.data = n.data[:end]
	}
	copy(n.data[off:], p)
}

func (n *inode) sync() {
	clear(n.dirty)
	n.sizes = n.sizes[:0]
}

// giveUp is a failed Sync: the page cache marks the pages as clean, but they are not on the
// disk.
func (n *inode) giveUp() {
	if n.stuck == nil {
		n.stuck = map[int64][][]byte{}
	}
	maps.Copy(n.stuck, n.dirty)
	clear(n.dirty)
}

// memoryFile is an open file of a Memory.
type memoryFile struct {
	disk     *Memory
	name     string
	node     *inode
	readOnly bool
	closed   bool // guarded by the Memory's lock
}

func (f *memoryFile) begin(op Op) (*Fault, error) {
	op.Name = f.name
	fault, err := f.disk.begin(op)
	if err == nil && f.closed {
		f.disk.mu.Unlock()
		return nil, pathError(op.Kind.String(), f.name, fs.ErrClosed)
	}
	return fault, err
}

// ReadAt implements File.
func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	fault, err := f.begin(Op{Kind: OpRead, Off: off, Len: int64(len(p))})
	if err != nil {
		return 0, err
	}
	n := 0
	if off < int64(len(f.node.data)) {
		n = copy(p, f.node.data[off:])
	}
	if err := f.disk.end(fault); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements File.
func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	if f.readOnly {
		return 0, pathError("write", f.name, fs.ErrPermission)
	}
	fault, err := f.begin(Op{Kind: OpWrite, Off: off, Len: int64(len(p))})
	if err != nil {
		return 0, err
	}
	if fault != nil && !errors.Is(fault.Err, ErrCrashed) {
		p = p[:min(fault.Keep, int64(len(p)))]
	}
	if more := off + int64(len(p)) - int64(len(f.node.data)); more > 0 {
		if room := f.disk.roomLocked(more); room < more {
			p = p[:max(0, int64(len(p))-(more-room))]
			fault = &Fault{Err: pathError("write", f.name, syscall.ENOSPC)}
		}
	}
	f.node.write(p, off)
	if err := f.disk.end(fault); err != nil {
		return len(p), err
	}
	return len(p), nil
}

// Sync implements File.
func (f *memoryFile) Sync() error {
	fault, err := f.begin(Op{Kind: OpSync})
	if err != nil {
		return err
	}
	switch {
	case fault == nil:
		f.node.sync()
	case !errors.Is(fault.Err, ErrCrashed):
		f.node.giveUp()
	}
	return f.disk.end(fault)
}

// Size implements File.
func (f *memoryFile) Size() (int64, error) {
	fault, err := f.begin(Op{Kind: OpRead})
	if err != nil {
		return 0, err
	}
	size := int64(len(f.node.data))
	return size, f.disk.end(fault)
}

// Close implements File.
func (f *memoryFile) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.closed = true
	return nil
}

// Survival decides which unsynced changes survive a crash.
type Survival int

// The kinds of crash.
const (
	// Nothing: all unsynced changes are lost.
	Nothing Survival = iota
	// Something: each sector has a random version since the last Sync, and each change of
	// names has happened or not, at random.
	Something
	// Everything: all changes survive.
	Everything
)

// Crash ends m and returns the directory that the next process finds. Every later operation
// on m fails. The result depends only on m and the random numbers.
func (m *Memory) Crash(keep Survival, random *rand.Rand) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.crashed = true
	return m.leaveLocked(keep, random)
}

// EndProcess ends the process that uses m, but not the machine: every operation on m fails
// from now on, and its locks and open files are closed. The next process sees the same
// directory. Changes that m has not synced, or that a failed Sync has given up, are still
// not durable.
func (m *Memory) EndProcess() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.crashed = true
	next := NewMemory()
	next.mu.capacity = m.mu.capacity
	next.mu.names, next.mu.durable, next.mu.changes = m.mu.names, m.mu.durable, m.mu.changes
	m.mu.names, m.mu.durable, m.mu.changes = maps.Clone(m.mu.names), maps.Clone(m.mu.durable), nil
	return next
}

// Durable returns the directory after a crash that loses all unsynced changes. m remains
// usable.
func (m *Memory) Durable() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaveLocked(Nothing, nil)
}

func (m *Memory) leaveLocked(keep Survival, random *rand.Rand) *Memory {
	names := maps.Clone(m.mu.names)
	if keep != Everything {
		names = maps.Clone(m.mu.durable)
	}
	if keep == Something {
		for i := range m.mu.changes {
			if random.IntN(2) == 0 {
				m.mu.changes[i].apply(names)
			}
		}
	}
	next := NewMemory()
	next.mu.capacity = m.mu.capacity
	for _, name := range slices.Sorted(maps.Keys(names)) {
		node := names[name].crash(keep, random)
		next.mu.names[name], next.mu.durable[name] = node, node
	}
	return next
}

// Clone returns a copy of m in which all changes are durable. The copy shares contents with
// m, so m must not be written any more.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := NewMemory()
	next.mu.capacity = m.mu.capacity
	for name, node := range m.mu.names {
		shared := newInode()
		shared.data, shared.shared = node.data, true
		next.mu.names[name], next.mu.durable[name] = shared, shared
	}
	return next
}

// crash returns the file after a crash.
func (n *inode) crash(keep Survival, random *rand.Rand) *inode {
	next := newInode()
	next.data = bytes.Clone(n.data)
	if keep == Everything {
		return next
	}
	for _, dirty := range []map[int64][][]byte{n.dirty, n.stuck} {
		for _, s := range slices.Sorted(maps.Keys(dirty)) {
			versions, which := dirty[s], 0
			if keep == Something {
				which = random.IntN(len(versions) + 1)
			}
			if which < len(versions) {
				next.replace(s, versions[which])
			}
		}
	}
	sizes := append(slices.Clone(n.sizes), int64(len(n.data)))
	which := 0
	if keep == Something {
		which = random.IntN(len(sizes))
	}
	next.data = next.data[:sizes[which]]
	return next
}

func (n *inode) replace(s int64, version []byte) {
	to := n.data[s*sectorSize : min(int64(len(n.data)), (s+1)*sectorSize)]
	clear(to)
	copy(to, version)
}

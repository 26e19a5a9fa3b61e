package fs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
)

// sectorSize is the unit that a disk writes as a whole.
const sectorSize = 512

// inode is a file without its name. The Memory's lock guards it.
type inode struct {
	// data is what the process reads. If shared, other inodes hold it too, and
	// it must be copied before it is written.
	data   []byte
	shared bool
	// dirty holds, per sector written since the last Sync, what a crash may
	// bring back: what that Sync left, and what each write but the newest made
	// of it. A nil version is a sector of zeros.
	dirty map[int64][][]byte
	// stuck is dirty's share that a failed Sync has given up: no later Sync
	// makes it durable, unless the sector is written again.
	stuck map[int64][][]byte
	// sizes are the sizes since the last Sync, but for the newest.
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

// giveUp is a failed Sync: the page cache takes the pages for clean, and the
// disk does not have them.
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
			fault = &Fault{Err: pathError("write", f.name, errNoSpace)}
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

package fs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// ErrCrashed is returned by every operation on a Memory after its crash.
var ErrCrashed = errors.New("fs: the machine has crashed")

// Memory is a directory in memory that behaves like a disk behind a page cache: it records
// unsynced changes, and Crash decides which of them survive. Call NewMemory to make one. Its
// methods are safe for concurrent use.
type Memory struct {
	mu struct {
		sync.Mutex
		// names are the files that the process sees, durable those as of the last Sync.
		// changes lead from durable to names.
		names, durable map[string]*inode
		changes        []change
		locked         map[string]bool
		hook           func(Op) *Fault
		capacity       int64
		ops            int
		crashed        bool
	}
}

// change is one unsynced change of names: node is renamed from from to to, or removed if to
// is empty.
type change struct {
	from, to string
	node     *inode
}

func (c *change) apply(names map[string]*inode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.node
	}
}

// NewMemory returns an empty directory on a disk of unlimited size.
func NewMemory() *Memory {
	m := &Memory{}
	m.mu.names, m.mu.durable = map[string]*inode{}, map[string]*inode{}
	m.mu.locked = map[string]bool{}
	m.mu.capacity = -1
	return m
}

// SetHook installs f, which is called before every operation and decides whether the
// operation fails. f may sleep, to make the disk slow. It must not call m.
func (m *Memory) SetHook(f func(Op) *Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.hook = f
}

// SetCapacity limits the disk to n bytes in all files. Negative means no limit. A write
// beyond the limit is short and fails with ENOSPC.
func (m *Memory) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.capacity = n
}

// Used returns the size of all files together.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usedLocked()
}

func (m *Memory) usedLocked() (n int64) {
	for _, node := range m.mu.names {
		n += int64(len(node.data))
	}
	return n
}

// Ops returns the number of operations that changed something or tried to.
func (m *Memory) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.ops
}

// begin calls the hook for op and then takes the lock. After an error the lock is not held.
func (m *Memory) begin(op Op) (*Fault, error) {
	m.mu.Lock()
	if m.mu.crashed {
		m.mu.Unlock()
		return nil, ErrCrashed
	}
	if op.Kind.changes() {
		m.mu.ops++
	}
	hook := m.mu.hook
	op.N = m.mu.ops
	if hook == nil {
		return nil, nil
	}
	m.mu.Unlock()
	fault := hook(op)
	m.mu.Lock()
	if m.mu.crashed {
		m.mu.Unlock()
		return nil, ErrCrashed
	}
	if fault == nil {
		return nil, nil
	}
	if errors.Is(fault.Err, ErrCrashed) {
		m.mu.crashed = true
		return fault, nil // the operation takes effect, but returns an error
	}
	if op.Kind == OpWrite || op.Kind == OpSync {
		return fault, nil
	}
	m.mu.Unlock()
	return nil, fault.Err
}

// end releases the lock and returns the error for the process.
func (m *Memory) end(fault *Fault) error {
	m.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault.Err
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// Names implements FS.
func (m *Memory) Names() ([]string, error) {
	fault, err := m.begin(Op{Kind: OpList})
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(m.mu.names))
	return names, m.end(fault)
}

// Create implements FS.
func (m *Memory) Create(name string) (File, error) {
	fault, err := m.begin(Op{Kind: OpCreate, Name: name})
	if err != nil {
		return nil, err
	}
	if m.mu.names[name] != nil {
		m.mu.Unlock()
		return nil, pathError("create", name, fs.ErrExist)
	}
	node := newInode()
	m.changeLocked(change{to: name, node: node})
	return &memoryFile{disk: m, name: name, node: node}, m.end(fault)
}

// Open implements FS.
func (m *Memory) Open(name string) (File, error) { return m.open(name, false) }

// OpenRead implements FS.
func (m *Memory) OpenRead(name string) (File, error) { return m.open(name, true) }

func (m *Memory) open(name string, readOnly bool) (File, error) {
	fault, err := m.begin(Op{Kind: OpOpen, Name: name})
	if err != nil {
		return nil, err
	}
	node := m.mu.names[name]
	if node == nil {
		m.mu.Unlock()
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	return &memoryFile{disk: m, name: name, node: node, readOnly: readOnly}, m.end(fault)
}

// Rename implements FS.
func (m *Memory) Rename(from, to string) error {
	fault, err := m.begin(Op{Kind: OpRename, Name: from, To: to})
	if err != nil {
		return err
	}
	node := m.mu.names[from]
	if node == nil {
		m.mu.Unlock()
		return pathError("rename", from, fs.ErrNotExist)
	}
	m.changeLocked(change{from: from, to: to, node: node})
	return m.end(fault)
}

// Remove implements FS.
func (m *Memory) Remove(name string) error {
	fault, err := m.begin(Op{Kind: OpRemove, Name: name})
	if err != nil {
		return err
	}
	if m.mu.names[name] == nil {
		m.mu.Unlock()
		return pathError("remove", name, fs.ErrNotExist)
	}
	m.changeLocked(change{from: name})
	return m.end(fault)
}

func (m *Memory) changeLocked(c change) {
	c.apply(m.mu.names)
	m.mu.changes = append(m.mu.changes, c)
}

// Sync implements FS.
func (m *Memory) Sync() error {
	fault, err := m.begin(Op{Kind: OpSyncDir})
	if err != nil {
		return err
	}
	if fault == nil {
		m.mu.durable = maps.Clone(m.mu.names)
		m.mu.changes = nil
	}
	return m.end(fault)
}

// Lock implements FS.
func (m *Memory) Lock(name string) (io.Closer, error) {
	fault, err := m.begin(Op{Kind: OpLock, Name: name})
	if err != nil {
		return nil, err
	}
	if m.mu.locked[name] {
		m.mu.Unlock()
		return nil, ErrLocked
	}
	m.mu.locked[name] = true
	return &memoryLock{disk: m, name: name}, m.end(fault)
}

// memoryLock is a lock that was taken.
type memoryLock struct {
	disk *Memory
	name string
}

// Close implements io.Closer.
func (l *memoryLock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	delete(l.disk.mu.locked, l.name)
	return nil
}

// Bytes returns a copy of a file's content, or nil if there is no such file.
func (m *Memory) Bytes(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.mu.names[name]
	if node == nil {
		return nil
	}
	return bytes.Clone(node.data)
}

// SetBytes replaces a file's content durably and without the hook, to damage the file. It
// keeps data and does not change it.
func (m *Memory) SetBytes(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node := newInode()
	node.data, node.shared = data, true
	m.mu.names[name], m.mu.durable[name] = node, node
}

// roomLocked returns how many of n more bytes fit on the disk.
func (m *Memory) roomLocked(n int64) int64 {
	if m.mu.capacity < 0 {
		return n
	}
	return min(n, max(0, m.mu.capacity-m.usedLocked()))
}

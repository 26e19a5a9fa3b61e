package fs

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// Survival says what of the unsynced a crash leaves.
type Survival int

// The kinds of crash.
const (
	// Nothing: all that was not synced is gone.
	Nothing Survival = iota
	// Something: of each sector any version since the last Sync is left, and
	// each change of names has happened or not, as the random numbers say.
	Something
	// Everything: the disk had written all of it.
	Everything
)

// Crash ends m, on which every operation fails from now on, and returns what
// the next process finds. The result depends on m and the random numbers only.
func (m *Memory) Crash(keep Survival, random *rand.Rand) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.crashed = true
	return m.leaveLocked(keep, random)
}

// EndProcess ends the process that uses m, but not the machine: every operation
// on m fails from now on, and its locks and open files are gone. What the next
// process finds is as this one saw it, and still not durable where m had not
// synced it, or had failed to.
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

// Durable returns what a crash leaves if it leaves nothing that was not synced.
// m goes on.
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

// Clone returns a copy of m, on which all is durable that the process sees. It shares
// contents with m, which must not be written any more.
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

// crash returns what is left of the file.
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

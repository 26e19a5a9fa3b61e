package leasetest

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
)

// machine is the replicated state: for each key, the log index of its newest
// write, which serves as the key's version.
type machine struct {
	applied  uint64
	versions map[uint64]uint64
}

func newMachine() *machine { return &machine{versions: make(map[uint64]uint64)} }

// command is the data of an entry: which key is written, by which write.
func command(key, write uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, key)
	return binary.BigEndian.AppendUint64(b, write)
}

// apply returns the id of the write that the entry carries, 0 if none.
func (m *machine) apply(index uint64, data []byte) (write uint64) {
	m.applied = index
	if len(data) != 16 {
		return 0
	}
	m.versions[binary.BigEndian.Uint64(data)] = index
	return binary.BigEndian.Uint64(data[8:])
}

// encode and decode carry the state in a snapshot.
func (m *machine) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, m.applied)
	for _, key := range slices.Sorted(maps.Keys(m.versions)) {
		b = binary.BigEndian.AppendUint64(b, key)
		b = binary.BigEndian.AppendUint64(b, m.versions[key])
	}
	return b
}

func decodeMachine(b []byte) *machine {
	m := newMachine()
	if len(b) < 8 {
		return m
	}
	m.applied = binary.BigEndian.Uint64(b)
	for b = b[8:]; len(b) >= 16; b = b[16:] {
		m.versions[binary.BigEndian.Uint64(b)] = binary.BigEndian.Uint64(b[8:])
	}
	return m
}

// hash is equal on machines that are equal.
func (m *machine) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(m.encode())
	return h.Sum64()
}

// writeID returns the write that a command carries, 0 if none.
func writeID(data []byte) uint64 {
	if len(data) != 16 {
		return 0
	}
	return binary.BigEndian.Uint64(data[8:])
}

package kvnode

import (
	"cmp"

	"github.com/leaderlease/go/raftwal"
)

// segmentSize is what the log needs to go on once its segment is full.
func (n *Node) segmentSize() int64 {
	return cmp.Or(n.cfg.SegmentSize, raftwal.Config{}.WithDefaults().SegmentSize)
}

// checkpointSize is what the next checkpoint makes store.db grow by, as far as can be
// told: what is not saved goes to unused pages first, and the file grows by a step.
func (n *Node) checkpointSize() int64 {
	const step = 1 << 20
	size, inUse := n.store.Size()
	return max(inUse+n.store.Unsaved()-size, 0) + step
}

// roomFor is what the log says about a disk that does not have room for size bytes.
func (n *Node) roomFor(size int64) []any {
	free, known := freeBytes(n.cfg.DataDir)
	return missing(free, known, size)
}

// missing is what is needed, what there is, and what is to be freed.
func missing(free int64, known bool, size int64) []any {
	if !known {
		return []any{"needed_bytes", size}
	}
	return []any{"needed_bytes", size, "free_bytes", free, "missing_bytes", max(size-free, 0)}
}

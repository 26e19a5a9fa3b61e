package raftwal

// use is what a batch is for, which says how far into the reserve it may go.
type use int

// The uses, from the one that leaves most to those behind it.
const (
	useBulk     use = iota // entries, or an installed snapshot
	useState               // hard states, promises, and what frees nothing
	useFlush               // a Flush on the way to a Compact that frees a segment
	useSnapshot            // a SaveSnapshot on that way
	useCompact             // that Compact
)

// The bounds of the reserve. It is room for two hundred hard states, a hundred
// Flushes and a large configuration, and little of a segment of the usual size.
const (
	minReserve = 1 << 10
	maxReserve = 64 << 10
)

// reserve is how much of the end of a segment is kept for batches that neither
// append entries nor install a snapshot. On a full disk no segment can be begun,
// and without it neither SaveSnapshot nor Compact could write what frees one.
func reserve(segmentSize int64) int64 {
	return max(minReserve, min(maxReserve, segmentSize/8))
}

// compactSize is the size of Compact's batch.
const compactSize = batchHeader + (recordHeader+basePayload+recordTrailer+7)&^7

// leave is how much of a segment must be left behind a batch: what those need
// that come after it on the way to a free segment. Nothing that is repeated can
// use that up, be it elections, or checkpoints that free nothing.
//
// Invariant: behind a SaveSnapshot that has gone into its share there is room
// for the Compact that frees a segment; and if none has, there is room for one
// and its Compact. Its index is never taken back, so that Compact stays useful.
func (u use) leave(segmentSize int64) int64 {
	all := reserve(segmentSize)
	switch u {
	case useBulk:
		return all
	case useState:
		return all * 6 / 8
	case useFlush:
		return all * 5 / 8
	case useSnapshot:
		return compactSize
	default:
		return 0
	}
}

// useFor returns u if a Compact up to index would free a segment, and otherwise
// what may only use what hard states may.
func (l *Log) useFor(u use, index uint64) use {
	if l.deadAfter(index) == 0 {
		return useState
	}
	return u
}

// deadAfter returns how many segments, from the first, hold no entry beyond
// index. The last segment is never one of them.
func (l *Log) deadAfter(index uint64) int {
	v := &l.mu.view
	first := uint32(l.w.seg.id)
	if next := max(index+1, v.first); next <= v.last() {
		first = v.slots.at(next - v.first).segment
	}
	return int(uint64(first) - l.mu.segments[0].id)
}

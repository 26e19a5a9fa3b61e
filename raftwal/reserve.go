package raftwal

// maxReserve bounds the reserve: more than one compaction needs, and little of a
// segment of the usual size.
const maxReserve = 4 << 10

// reserve is how much of the end of a segment is kept for batches that neither
// append entries nor install a snapshot. On a full disk no segment can be begun,
// and without it neither SaveSnapshot nor Compact could write what frees one.
func reserve(segmentSize int64) int64 { return min(maxReserve, segmentSize/8) }

// leave is how much of a segment must be left behind b. Hard states and promises
// get half of the reserve: elections on a full disk must not use up what
// compaction needs.
func (b *batch) leave(segmentSize int64) int64 {
	switch all := reserve(segmentSize); {
	case b.bulk:
		return all
	case b.frees:
		return 0
	default:
		return all / 2
	}
}

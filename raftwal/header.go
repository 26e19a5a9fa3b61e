package raftwal

import (
	"fmt"
	"hash/crc32"
	"math"
)

// A segment begins with a header in a sector of its own, which is written once:
//
//	0   8 bytes magic
//	8   uint32  version of the format
//	12  uint32  zero
//	16  uint64  id of the segment; the name of the file is this in hexadecimal
//	24  uint64  size of the file
//	32  uint64  nonce, random for each use of a file
//	40  uint64  number of the first batch
//	48  uint64  index that the first entry in here gets, if it continues the log
//	56  uint64  end of the batches that were durable before the file had its name
//	64  uint64  end of the segment before this one
//	72  uint32  CRC at that end
//	76  zeros
//	508 uint32  CRC-32C of all that
const (
	headerSize = 512
	magic      = "raftwal\x1a"
	version    = 1
)

// header is the header of a segment.
type header struct {
	id, size, nonce       uint64
	firstBatch, nextIndex uint64
	sealed                uint64
	prevEnd               uint64
	prevChain             uint32
}

// encode writes the header and returns its CRC.
func (h *header) encode(b []byte) uint32 {
	clear(b[:headerSize])
	copy(b, magic)
	le.PutUint32(b[8:], version)
	for i, v := range []uint64{h.id, h.size, h.nonce, h.firstBatch, h.nextIndex, h.sealed, h.prevEnd} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b[72:], h.prevChain)
	crc := crc32.Checksum(b[:headerSize-crcSize], castagnoli)
	le.PutUint32(b[headerSize-crcSize:], crc)
	return crc
}

// parseHeader reads the header of segment id in a file of size bytes. If it is
// none, reason says why.
func parseHeader(b []byte, id uint64, size int64) (h header, crc uint32, reason string) {
	if string(b[:len(magic)]) != magic {
		return h, 0, "this is not a segment"
	}
	crc = crc32.Checksum(b[:headerSize-crcSize], castagnoli)
	if crc != le.Uint32(b[headerSize-crcSize:]) {
		return h, 0, "the CRC of the header does not match"
	}
	if v := le.Uint32(b[8:]); v != version {
		return h, 0, fmt.Sprintf("the format is version %d, not %d", v, version)
	}
	for i, v := range []*uint64{&h.id, &h.size, &h.nonce, &h.firstBatch, &h.nextIndex, &h.sealed, &h.prevEnd} {
		*v = le.Uint64(b[16+8*i:])
	}
	h.prevChain = le.Uint32(b[72:])
	switch {
	case h.id != id:
		return h, 0, fmt.Sprintf("this is segment %d under the name of segment %d", h.id, id)
	case h.size != uint64(size):
		return h, 0, fmt.Sprintf("the file has %d bytes, and had %d", size, h.size)
	case h.size > math.MaxUint32:
		return h, 0, fmt.Sprintf("%d bytes are more than a segment can have", h.size)
	case h.sealed < headerSize || h.sealed > h.size:
		return h, 0, "the header contradicts itself"
	}
	return h, crc, ""
}

package boltfence

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/leaderlease/go/leaderlease/fence"
)

// A stored token is a version byte, the token's binary form and a CRC-32C over
// the resource name and all bytes before. bbolt has no checksum on data pages,
// and one flipped bit could lower the token and let a fenced-off holder in.
const (
	recordVersion = 1
	recordSize    = 1 + fence.TokenSize + crc32.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(resource string, t fence.Token) []byte {
	b := make([]byte, 0, recordSize)
	b = append(b, recordVersion)
	b, _ = t.AppendBinary(b) // never fails
	return binary.BigEndian.AppendUint32(b, checksum(resource, b))
}

// decode returns the token, or an error that matches [ErrCorrupt]. A zero
// token is never stored, so it is damage too.
func decode(resource string, value []byte) (fence.Token, error) {
	if len(value) != recordSize {
		return fence.Token{}, fmt.Errorf("%w: %d bytes, want %d", ErrCorrupt, len(value), recordSize)
	}
	body, sum := value[:recordSize-crc32.Size], binary.BigEndian.Uint32(value[recordSize-crc32.Size:])
	if got := checksum(resource, body); got != sum {
		return fence.Token{}, fmt.Errorf("%w: checksum %08x, computed %08x", ErrCorrupt, sum, got)
	}
	if body[0] != recordVersion {
		return fence.Token{}, fmt.Errorf("%w: version %d, this build reads %d", ErrCorrupt, body[0], recordVersion)
	}
	var t fence.Token
	if err := t.UnmarshalBinary(body[1:]); err != nil {
		return fence.Token{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if t.IsZero() {
		return fence.Token{}, fmt.Errorf("%w: it is zero", ErrCorrupt)
	}
	return t, nil
}

func checksum(resource string, body []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(resource), castagnoli), castagnoli, body)
}

package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/proto"
)

// A record is one version. Its key is main and sub revision, 8 bytes each, so
// that the order of keys is the order of writes. Its value is a CRC-32C over key
// and rest, a byte that says what it is, and a KeyValue.
const (
	recordKeySize = 16
	recordHead    = 5

	recordTombstone = 0
	recordLive      = 1
)

func recordKey(v *version) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, recordKeySize), uint64(v.main()))
	return binary.BigEndian.AppendUint64(key, uint64(v.sub))
}

func recordValue(key []byte, v *version) ([]byte, error) {
	opts := proto.MarshalOptions{}
	buf := make([]byte, recordHead, recordHead+opts.Size(&v.kv))
	if !v.tombstone() {
		buf[4] = recordLive
	}
	buf, err := opts.MarshalAppend(buf, &v.kv)
	if err != nil {
		return nil, fmt.Errorf("encode revision %d.%d: %w", v.main(), v.sub, err)
	}
	binary.BigEndian.PutUint32(buf, recordSum(key, buf))
	return buf, nil
}

// recordCost is what a record takes besides the bytes of key and value: its own
// key and head, the numbers of a KeyValue, and its place in a page of bbolt.
const recordCost = 80

// cost estimates what v takes in a checkpoint.
func (v *version) cost() int64 {
	return recordCost + int64(len(v.kv.GetKey())+len(v.kv.GetValue()))
}

// recordSum computes the sum of a record, whatever value begins with.
func recordSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value[4:])
}

// decodeRecord is the reverse. It copies what it keeps.
func decodeRecord(key, value []byte) (*version, error) {
	if err := checkRecord(key, value); err != nil {
		return nil, err
	}
	main, sub := int64(binary.BigEndian.Uint64(key)), binary.BigEndian.Uint64(key[8:])
	v := &version{sub: uint32(sub)}
	if err := proto.Unmarshal(value[recordHead:], &v.kv); err != nil {
		return nil, fmt.Errorf("%w: record of revision %d.%d: %w", ErrDamaged, main, sub, err)
	}
	kind := byte(recordLive)
	if v.tombstone() {
		kind = recordTombstone
	}
	if value[4] != kind || v.main() != main || uint64(v.sub) != sub || main <= 0 {
		return nil, fmt.Errorf("%w: record of revision %d.%d holds kind %d, revision %d and version %d", ErrDamaged, main, sub, value[4], v.main(), v.kv.GetVersion())
	}
	return v, nil
}

// checkRecord finds damage without decoding.
func checkRecord(key, value []byte) error {
	if len(key) != recordKeySize || len(value) < recordHead {
		return fmt.Errorf("%w: record of %d + %d bytes, want %d + at least %d", ErrDamaged, len(key), len(value), recordKeySize, recordHead)
	}
	if got, want := recordSum(key, value), binary.BigEndian.Uint32(value); got != want {
		return fmt.Errorf("%w: record of key %x has checksum %#x, want %#x", ErrDamaged, key, got, want)
	}
	return nil
}

package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A record holds one version, or a TTL lease (ttl.go). Its key is the main and sub revision, 8
// bytes each, so records are in the order of writes. Its value is a CRC-32C of the key and the rest
// of the value, one byte for the kind, and a KeyValue message.
const (
	recordKeySize = 16
	recordHead    = 5

	recordTombstone = 0
	recordLive      = 1
)

// recordID is the revision of a version, which is the key of its record.
type recordID struct {
	main int64
	sub  uint32
}

func recordOf(v *Version) recordID { return recordID{v.mod, v.sub} }

func (p recordID) key(in *slab) []byte {
	key := binary.BigEndian.AppendUint64(in.alloc(recordKeySize), uint64(p.main))
	return binary.BigEndian.AppendUint64(key, uint64(p.sub))
}

func recordValue(in *slab, key []byte, v *Version) []byte {
	const numbers = 6 + 6*binary.MaxVarintLen64 // tags, lengths and revisions
	buf := in.alloc(recordHead + numbers + len(v.GetKey()) + int(v.size))[:recordHead]
	buf[4] = recordTombstone
	if !v.tombstone() {
		buf[4] = recordLive
	}
	buf = appendMessage(buf, v)
	binary.BigEndian.PutUint32(buf, recordSum(key, buf))
	return buf
}

// appendMessage appends the same bytes as proto.Marshal of v.Message, in a fraction of the time.
func appendMessage(to []byte, v *Version) []byte {
	bytes := func(field protowire.Number, b []byte) {
		if len(b) > 0 {
			to = protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), b)
		}
	}
	number := func(field protowire.Number, n int64) {
		if n != 0 {
			to = protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), uint64(n))
		}
	}
	bytes(1, v.GetKey())
	number(2, v.create)
	number(3, v.mod)
	number(4, v.number)
	bytes(5, v.GetValue())
	number(6, v.lease)
	return to
}

// recordCost is the approximate size of a record besides the client's key and value: the record's own key
// and header, the numbers of the KeyValue, and an element of a bbolt page.
const recordCost = 80

// cost estimates the size of v in a checkpoint.
func (v *Version) cost() int64 {
	return recordCost + int64(len(v.GetKey())+int(v.size))
}

// recordSum returns the checksum of a record. It ignores the checksum in value.
func recordSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value[4:])
}

// decodeRecord is the reverse of recordID.key and recordValue. The version gets a copy of the
// value, and no chain yet. name is its key, which shares memory with the record.
func decodeRecord(key, value []byte) (v *Version, name []byte, err error) {
	if err := checkRecord(key, value); err != nil {
		return nil, nil, err
	}
	main, sub := int64(binary.BigEndian.Uint64(key)), binary.BigEndian.Uint64(key[8:])
	var f recordFields
	if !f.decode(value[recordHead:]) {
		if err := f.unmarshal(value[recordHead:]); err != nil {
			return nil, nil, fmt.Errorf("%w: record of revision %d.%d: %w", ErrDamaged, main, sub, err)
		}
	}
	v = &Version{sub: uint32(sub), mod: f.mod, create: f.create, number: f.version, lease: f.lease}
	v.setValue(bytes.Clone(f.value))
	kind := byte(recordLive)
	if v.tombstone() {
		kind = recordTombstone
	}
	if value[4] != kind || v.mod != main || uint64(v.sub) != sub || main <= 0 {
		return nil, nil, fmt.Errorf("%w: record of revision %d.%d holds kind %d, revision %d and version %d", ErrDamaged, main, sub, value[4], v.mod, v.GetVersion())
	}
	return v, f.key, nil
}

// checkRecord verifies size and checksum.
func checkRecord(key, value []byte) error {
	if len(key) != recordKeySize || len(value) < recordHead {
		return fmt.Errorf("%w: record of %d + %d bytes, want %d + at least %d", ErrDamaged, len(key), len(value), recordKeySize, recordHead)
	}
	if got, want := recordSum(key, value), binary.BigEndian.Uint32(value); got != want {
		return fmt.Errorf("%w: record of key %x has checksum %#x, want %#x", ErrDamaged, key, got, want)
	}
	return nil
}

// recordFields are the fields of the KeyValue in a record. key and value share memory with it.
type recordFields struct {
	key, value                  []byte
	create, mod, version, lease int64
}

// decode decodes the output of appendMessage: ascending fields, each at most once. It returns false
// for other encodings, which unmarshal handles. A start decodes millions of records, and
// proto.Unmarshal would take a third of its time.
func (f *recordFields) decode(b []byte) bool {
	for last := protowire.Number(0); len(b) > 0; {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 || number <= last {
			return false
		}
		b, last = b[n:], number
		if n = f.field(number, typ, b); n < 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

// field decodes one field and returns its length, or -1 if it is invalid.
func (f *recordFields) field(number protowire.Number, typ protowire.Type, b []byte) int {
	if to := f.bytes(number); to != nil && typ == protowire.BytesType {
		v, n := protowire.ConsumeBytes(b)
		*to = v
		return n
	}
	if to := f.number(number); to != nil && typ == protowire.VarintType {
		v, n := protowire.ConsumeVarint(b)
		*to = int64(v)
		return n
	}
	return -1
}

func (f *recordFields) bytes(number protowire.Number) *[]byte {
	switch number {
	case 1:
		return &f.key
	case 5:
		return &f.value
	default:
		return nil
	}
}

func (f *recordFields) number(number protowire.Number) *int64 {
	switch number {
	case 2:
		return &f.create
	case 3:
		return &f.mod
	case 4:
		return &f.version
	case 6:
		return &f.lease
	default:
		return nil
	}
}

// unmarshal decodes any encoding of a KeyValue.
func (f *recordFields) unmarshal(b []byte) error {
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(b, &kv); err != nil {
		return err
	}
	*f = recordFields{kv.GetKey(), kv.GetValue(), kv.GetCreateRevision(), kv.GetModRevision(), kv.GetVersion(), kv.GetLease()}
	return nil
}

// slab is the memory for the records of one commit. Later commits reuse it. Without it, a sixth of
// all bytes allocated under load would be records that live for one commit.
type slab struct {
	chunks [][]byte
	used   int // full chunks
}

// slabBlock divides commitBytes, so a commit wastes little memory.
const slabBlock = commitBytes / 4

// slabs holds unused slabs. The garbage collector drops them, so an idle store has none.
var slabs = sync.Pool{New: func() any { return new(slab) }}

// getSlab returns an empty slab.
func getSlab() *slab {
	s, _ := slabs.Get().(*slab)
	return s
}

// release returns the slab to the pool. Memory from alloc must not be used any more.
func (s *slab) release() {
	s.used = 0
	for i := range s.chunks {
		s.chunks[i] = s.chunks[i][:0]
	}
	slabs.Put(s)
}

// alloc returns an empty slice with capacity n. Its memory is not zeroed.
func (s *slab) alloc(n int) []byte {
	if n > slabBlock/4 {
		return make([]byte, 0, n) // it would waste the rest of a chunk
	}
	if s.used < len(s.chunks) && cap(s.chunks[s.used])-len(s.chunks[s.used]) < n {
		s.used++
	}
	if s.used == len(s.chunks) {
		s.chunks = append(s.chunks, make([]byte, 0, slabBlock))
	}
	c := &s.chunks[s.used]
	begin := len(*c)
	*c = (*c)[:begin+n]
	return (*c)[begin : begin : begin+n]
}

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

// A record is one version. Its key is main and sub revision, 8 bytes each, so
// that the order of keys is the order of writes. Its value is a CRC-32C over key
// and rest, a byte that says what it is, and a KeyValue.
const (
	recordKeySize = 16
	recordHead    = 5

	recordTombstone = 0
	recordLive      = 1
)

// recordID says which version a record is: its revision, and the number in it.
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

// appendMessage appends what proto.Marshal makes of v.Message, in a fraction of the time.
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

// recordCost is what a record takes besides the bytes of key and value: its own
// key and head, the numbers of a KeyValue, and its place in a page of bbolt.
const recordCost = 80

// cost estimates what v takes in a checkpoint.
func (v *Version) cost() int64 {
	return recordCost + int64(len(v.GetKey())+int(v.size))
}

// recordSum computes the sum of a record, whatever value begins with.
func recordSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value[4:])
}

// decodeRecord is the reverse. The version keeps a copy of its value; it has no chain yet, but
// a name, which is part of the record.
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

// recordFields are those of a KeyValue in a record. Key and value are part of what they were decoded of.
type recordFields struct {
	key, value                  []byte
	create, mod, version, lease int64
}

// decode decodes what appendMessage writes: each field at most once, in ascending order. It
// reports false of anything else, which unmarshal is for. A start reads millions of these, and
// with proto.Unmarshal a third of its time.
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

// field decodes one field and returns how long it is, -1 if it is not as it should be.
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

// unmarshal decodes any KeyValue.
func (f *recordFields) unmarshal(b []byte) error {
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(b, &kv); err != nil {
		return err
	}
	*f = recordFields{kv.GetKey(), kv.GetValue(), kv.GetCreateRevision(), kv.GetModRevision(), kv.GetVersion(), kv.GetLease()}
	return nil
}

// slab is memory for the records of one commit, which the next commit uses again. Without
// it a sixth of what a load allocates would be records that live for one commit, and the
// collector would come sooner by as much.
type slab struct {
	chunks [][]byte
	used   int // chunks that are full
}

// chunkSize divides commitBytes, so that a commit of one cut wastes little.
const chunkSize = commitBytes / 4

// slabs are those that no commit uses. The collector takes them, so a store at rest has none.
var slabs = sync.Pool{New: func() any { return new(slab) }}

// getSlab returns an empty slab.
func getSlab() *slab {
	s, _ := slabs.Get().(*slab)
	return s
}

// release gives the slab back. Nobody may use what room has returned any more.
func (s *slab) release() {
	s.used = 0
	for i := range s.chunks {
		s.chunks[i] = s.chunks[i][:0]
	}
	slabs.Put(s)
}

// room returns an empty slice for n bytes. What is in them is what an earlier commit has left.
func (s *slab) alloc(n int) []byte {
	if n > chunkSize/4 {
		return make([]byte, 0, n) // it would waste what is left of a chunk
	}
	if s.used < len(s.chunks) && cap(s.chunks[s.used])-len(s.chunks[s.used]) < n {
		s.used++
	}
	if s.used == len(s.chunks) {
		s.chunks = append(s.chunks, make([]byte, 0, chunkSize))
	}
	c := &s.chunks[s.used]
	begin := len(*c)
	*c = (*c)[:begin+n]
	return (*c)[begin : begin : begin+n]
}

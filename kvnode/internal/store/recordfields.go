package store

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

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

package store

import (
	"math"
	"reflect"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Whatever decode takes, it decodes as proto.Unmarshal does.
func FuzzFieldsAreThoseOfAKeyValue(f *testing.F) {
	add := func(kv *mvccpb.KeyValue) []byte {
		b, err := proto.Marshal(kv)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		return b
	}
	whole := add(&mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), CreateRevision: 2, ModRevision: math.MaxInt64, Version: -1, Lease: 6})
	add(&mvccpb.KeyValue{Key: []byte("deleted"), ModRevision: 9})
	add(&mvccpb.KeyValue{})
	f.Add(append(whole[:len(whole):len(whole)], whole...))                                                        // each field twice
	f.Add(protowire.AppendVarint(protowire.AppendTag(whole[:len(whole):len(whole)], 7, protowire.VarintType), 1)) // unknown
	f.Add(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), whole))                         // of another type
	f.Add([]byte{0x15, 0x01, 0x18, 0x85, 0x01})                                                                   // of another one, whose bytes are fields, too
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}) // more than 64 bits
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want recordFields
		if !got.decode(b) {
			return
		}
		if err := want.unmarshal(b); err != nil {
			t.Fatalf("decode(%x) takes what proto.Unmarshal refuses: %v", b, err)
		}
		for _, one := range []*recordFields{&got, &want} { // empty is as good as none
			one.key, one.value = append([]byte{}, one.key...), append([]byte{}, one.value...)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("decode(%x) = %+v, want %+v", b, got, want)
		}
	})
}

// What records hold needs no other decoder.
func TestRecordsAreDecodedByHand(t *testing.T) {
	for _, v := range []*Version{
		{mod: 2, create: 2, number: 1},
		{mod: math.MaxInt64, create: 300, number: 1 << 40, lease: -7},
		{mod: 5}, // a tombstone
	} {
		v.of = newChain([]byte("key"))
		v.setValue([]byte("value"))
		var f recordFields
		if b := appendMessage(nil, v); !f.decode(b) {
			t.Errorf("decode(%x) = false, want true", b)
		}
		want := recordFields{v.GetKey(), v.GetValue(), v.create, v.mod, v.number, v.lease}
		if !reflect.DeepEqual(f, want) {
			t.Errorf("decode() = %+v, want %+v", f, want)
		}
	}
}

// A version outlives the page that its record was read from.
func TestVersionsKeepTheirValues(t *testing.T) {
	v := &Version{of: newChain([]byte("key")), mod: 2, create: 2, number: 1}
	v.setValue([]byte("value"))
	key := recordOf(v).key(new(slab))
	record := recordValue(new(slab), key, v)
	got, _, err := decodeRecord(key, record)
	if err != nil {
		t.Fatal(err)
	}
	clear(record)
	if string(got.GetValue()) != "value" {
		t.Errorf("the value is %q once the page is gone, want %q", got.GetValue(), "value")
	}
}

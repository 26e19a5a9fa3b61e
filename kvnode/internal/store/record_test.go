package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// All encodings that decode accepts are decoded as proto.Unmarshal does.
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
	f.Add(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), whole))                         // a field of another type
	f.Add([]byte{0x15, 0x01, 0x18, 0x85, 0x01})                                                                   // a field of another type, with bytes that look like fields
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
		for _, one := range []*recordFields{&got, &want} { // empty equals nil
			one.key, one.value = append([]byte{}, one.key...), append([]byte{}, one.value...)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("decode(%x) = %+v, want %+v", b, got, want)
		}
	})
}

// Records are decoded without proto.Unmarshal.
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

// A version does not share memory with the page of its record.
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

// A slab hands out each byte once until it is released.
func TestSlabHandsOutRoomOnce(t *testing.T) {
	s := new(slab)
	for range 2 {
		var all [][]byte
		for n := range 5000 {
			size := n * 7 % 3000
			if n%1000 == 0 {
				size = 2 * slabBlock
			}
			room := s.alloc(size)
			if len(room) != 0 || cap(room) != size {
				t.Fatalf("room(%d) has length %d and capacity %d, want 0 and %[1]d", size, len(room), cap(room))
			}
			room = room[:size]
			for i := range room {
				room[i] = byte(n)
			}
			all = append(all, room)
		}
		for n, room := range all {
			if bytes.Count(room, []byte{byte(n)}) != len(room) {
				t.Fatalf("room %d of %d bytes was handed out again", n, len(room))
			}
		}
		s.release()
	}
}

// late is a backend that writes records when the transaction ends, as bbolt does. In between
// another slab is used.
type late struct {
	Backend
	t       *testing.T
	records int
}

func (l *late) View() (Image, error) { return emptyImage{}, nil }
func (l *late) EnsureDurable() error { return nil }
func (l *late) Close() error         { return nil }
func (l *late) Size() (int64, int64) { return 0, 0 }

func (l *late) Update(fn func(tx Tx) error) error {
	tx := &lateTx{}
	if err := fn(tx); err != nil {
		return err
	}
	other := getSlab()
	defer other.release()
	for range 100 {
		room := other.alloc(1000)[:1000]
		for i := range room {
			room[i] = 0xff
		}
	}
	for _, r := range tx.records {
		if err := checkRecord(r[0], r[1]); err != nil {
			l.t.Errorf("a record before it is written: %v", err)
		}
		l.records++
	}
	return nil
}

type lateTx struct{ records [][2][]byte }

func (t *lateTx) Meta() []byte              { return nil }
func (t *lateTx) SetMeta([]byte) error      { return nil }
func (t *lateTx) Record([]byte) []byte      { return nil }
func (t *lateTx) DeleteRecord([]byte) error { return nil }
func (t *lateTx) SetRecord(key, value []byte) error {
	t.records = append(t.records, [2][]byte{key, value})
	return nil
}

type emptyImage struct{ Image }

func (emptyImage) Meta() []byte                                { return nil }
func (emptyImage) Records(func(key, value []byte) error) error { return nil }
func (emptyImage) Size() int64                                 { return 0 }
func (emptyImage) Close() error                                { return nil }

// Records do not change before the backend has written them.
func TestRecordsLastUntilTheCommit(t *testing.T) {
	b := &late{t: t}
	c := &increment{conf: &raftpb.ConfState{}}
	for i := range 100 {
		v := &Version{of: newChain([]byte("key")), mod: int64(i + 2), create: 2, number: int64(i + 1)}
		v.setValue(make([]byte, 100))
		c.versions = append(c.versions, v)
	}
	s, err := Open(Config{Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	st := s.state.Load()
	for range 2 {
		st.increments = append(st.increments, c)
		if err := s.commit(st, c); err != nil {
			t.Fatal(err)
		}
	}
	if b.records != 200 {
		t.Errorf("%d records were written, want 200", b.records)
	}
}

// orderedTx fails the test if records are not written in ascending order.
type orderedTx struct {
	Tx
	t    *testing.T
	last []byte
	n    int
}

func (tx *orderedTx) Record([]byte) []byte { return nil }

func (tx *orderedTx) SetRecord(key, _ []byte) error {
	if bytes.Compare(key, tx.last) <= 0 {
		tx.t.Fatalf("record %x is written after %x", key, tx.last)
	}
	tx.last, tx.n = bytes.Clone(key), tx.n+1
	return nil
}

// Leases are saved in the order of their records, as bbolt moves the records behind one that is out
// of order.
func TestTTLLeasesAreSavedInOrder(t *testing.T) {
	var u changes
	const n = 1000
	for i := range int64(n) {
		u.setLease(TTLLease{ID: (i + 1) * 7919 * (1 - i%2*2), TTL: 10}) // half of them negative
	}
	tx := &orderedTx{t: t}
	if err := saveLeases(tx, &meta{}, u.leases, func([]byte) {}); err != nil || tx.n != n {
		t.Errorf("saveLeases() = %v with %d records, want %d", err, tx.n, n)
	}
}

// fields returns a lease record with a correct checksum and any numbers.
func fields(key []byte, kind byte, ttl, remaining int64, rest ...byte) []byte {
	buf := make([]byte, recordHead)
	buf[4] = kind
	buf = binary.AppendVarint(binary.AppendVarint(buf, ttl), remaining)
	buf = append(buf, rest...)
	binary.BigEndian.PutUint32(buf, recordSum(key, buf))
	return buf
}

// Each number in the record of a TTL lease is checked against its bounds.
func TestTTLRecordBounds(t *testing.T) {
	for _, c := range []struct {
		name           string
		id             int64
		kind           byte
		ttl, remaining int64
		rest           []byte
		ok             bool
	}{
		{"a plain one", 7, recordLease, 10, 5, nil, true},
		{"a negative ID", -7, recordLease, 10, 5, nil, true},
		{"the lowest ID", 1, recordLease, 10, 5, nil, true},
		{"no ID", 0, recordLease, 10, 5, nil, false},
		{"a live version", 7, recordLive, 10, 5, nil, false},
		{"the shortest TTL", 7, recordLease, 1, 0, nil, true},
		{"no TTL", 7, recordLease, 0, 0, nil, false},
		{"the longest TTL", 7, recordLease, MaxTTL, 0, nil, true},
		{"longer than the longest", 7, recordLease, MaxTTL + 1, 0, nil, false},
		{"all of it remains", 7, recordLease, 10, 10, nil, true},
		{"more than all remains", 7, recordLease, 10, 11, nil, false},
		{"less than nothing remains", 7, recordLease, 10, -1, nil, false},
		{"a grant", 7, recordLease, 10, 5, []byte{1}, true},
		{"a grant of two bytes", 7, recordLease, 10, 5, []byte{0x80, 1}, true},
		{"a grant that is none", 7, recordLease, 10, 5, []byte{0}, false},
		{"a grant that is cut off", 7, recordLease, 10, 5, []byte{0x80}, false},
		{"a grant and a byte too many", 7, recordLease, 10, 5, []byte{1, 0}, false},
	} {
		key := leaseKey(c.id)
		l, err := decodeLease(key, fields(key, c.kind, c.ttl, c.remaining, c.rest...))
		if !c.ok {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: decodeLease() = %+v, %v, want %v", c.name, l, err, ErrDamaged)
			}
			continue
		}
		if err != nil || l.ID != c.id || l.TTL != c.ttl || l.Remaining != c.remaining || (l.Generation != 0) != (c.rest != nil) {
			t.Errorf("%s: decodeLease() = %+v, %v, want what was written", c.name, l, err)
		}
	}
	key := leaseKey(7)
	short := fields(key, recordLease, 10, 5)[:recordHead+1] // without remaining seconds
	binary.BigEndian.PutUint32(short, recordSum(key, short))
	if l, err := decodeLease(key, short); !errors.Is(err, ErrDamaged) {
		t.Errorf("decodeLease(cut off behind the TTL) = %+v, %v, want %v", l, err, ErrDamaged)
	}
}

// A new leader starts from the remaining time, or from the TTL if there is none.
func TestLeft(t *testing.T) {
	for _, c := range []struct{ ttl, remaining, want int64 }{{10, 0, 10}, {10, 1, 1}, {10, 2, 2}, {10, 10, 10}, {10, 11, 10}} {
		if got := (TTLLease{TTL: c.ttl, Remaining: c.remaining}).Left(); got != c.want {
			t.Errorf("Left() of %d s of which %d remain = %d, want %d", c.ttl, c.remaining, got, c.want)
		}
	}
}

package store

import (
	"encoding/binary"
	"errors"
	"testing"
)

// fields is the value of a record with these numbers, whatever they are, and a sum
// that is right: so what a record says is looked at, not only whether it is whole.
func fields(key []byte, kind byte, ttl, remaining int64, rest ...byte) []byte {
	buf := make([]byte, recordHead)
	buf[4] = kind
	buf = binary.AppendVarint(binary.AppendVarint(buf, ttl), remaining)
	buf = append(buf, rest...)
	binary.BigEndian.PutUint32(buf, recordSum(key, buf))
	return buf
}

// What a record of a TTL lease may say: each number up to its bounds, and none beyond.
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
		if err != nil || l.ID != c.id || l.TTL != c.ttl || l.Remaining != c.remaining || (l.Grant != 0) != (c.rest != nil) {
			t.Errorf("%s: decodeLease() = %+v, %v, want what was written", c.name, l, err)
		}
	}
	key := leaseKey(7)
	short := fields(key, recordLease, 10, 5)[:recordHead+1] // no remaining seconds
	binary.BigEndian.PutUint32(short, recordSum(key, short))
	if l, err := decodeLease(key, short); !errors.Is(err, ErrDamaged) {
		t.Errorf("decodeLease(cut off behind the TTL) = %+v, %v, want %v", l, err, ErrDamaged)
	}
}

// A new leader gives what was left, be it one second, and all of it where nothing is
// said.
func TestLeft(t *testing.T) {
	for _, c := range []struct{ ttl, remaining, want int64 }{{10, 0, 10}, {10, 1, 1}, {10, 2, 2}, {10, 10, 10}, {10, 11, 10}} {
		if got := (TTLLease{TTL: c.ttl, Remaining: c.remaining}).Left(); got != c.want {
			t.Errorf("Left() of %d s of which %d remain = %d, want %d", c.ttl, c.remaining, got, c.want)
		}
	}
}

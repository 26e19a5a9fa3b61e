package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// A TTL lease is a record, too. Its key is that of revision 0, which no version
// has, and the ID: TTL leases come before all versions. Its value is that of a
// record with TTL and remaining seconds as varints, and the index of the grant as a
// uvarint unless it is 0, as it always is before FormatGrants.
const recordLease = 2

func isLeaseKey(key []byte) bool {
	return len(key) == recordKeySize && binary.BigEndian.Uint64(key) == 0
}

func leaseKey(id int64) []byte {
	key := make([]byte, recordKeySize)
	binary.BigEndian.PutUint64(key[8:], uint64(id))
	return key
}

func leaseValue(key []byte, l TTLLease) []byte {
	buf := make([]byte, recordHead, recordHead+3*binary.MaxVarintLen64)
	buf[4] = recordLease
	buf = binary.AppendVarint(buf, l.TTL)
	buf = binary.AppendVarint(buf, l.Remaining)
	if l.Grant != 0 {
		buf = binary.AppendUvarint(buf, l.Grant)
	}
	binary.BigEndian.PutUint32(buf, recordSum(key, buf))
	return buf
}

// decodeLease is the reverse of leaseKey and leaseValue.
func decodeLease(key, value []byte) (TTLLease, error) {
	if err := checkRecord(key, value); err != nil {
		return TTLLease{}, err
	}
	l := TTLLease{ID: int64(binary.BigEndian.Uint64(key[8:]))}
	rest := value[recordHead:]
	for _, field := range []*int64{&l.TTL, &l.Remaining} {
		x, n := binary.Varint(rest)
		if n <= 0 {
			return TTLLease{}, fmt.Errorf("%w: record of TTL lease %x has %d bytes", ErrDamaged, uint64(l.ID), len(value))
		}
		*field, rest = x, rest[n:]
	}
	if len(rest) > 0 {
		x, n := binary.Uvarint(rest)
		if n <= 0 || x == 0 {
			return TTLLease{}, fmt.Errorf("%w: record of TTL lease %x names no grant", ErrDamaged, uint64(l.ID))
		}
		l.Grant, rest = x, rest[n:]
	}
	if value[4] != recordLease || len(rest) > 0 || l.ID == 0 || l.TTL < 1 || l.TTL > MaxTTL || l.Remaining < 0 || l.Remaining > l.TTL {
		return TTLLease{}, fmt.Errorf("%w: record of TTL lease %x holds kind %d, TTL %d, remaining %d and %d bytes too many",
			ErrDamaged, uint64(l.ID), value[4], l.TTL, l.Remaining, len(rest))
	}
	return l, nil
}

// setLease notes what the next checkpoint says of l: that it is gone if its TTL
// is 0.
func (u *unsaved) setLease(l TTLLease) {
	if u.leases == nil {
		u.leases = make(map[int64]TTLLease)
	}
	u.leases[l.ID] = l
}

// saveLeases writes TTL leases to a checkpoint. replaced is called with what each record was
// before. It writes in the order of the records: bbolt keeps what a transaction adds in one
// sorted leaf, where each record out of order moves those behind it.
func saveLeases(tx Tx, m *meta, changed map[int64]TTLLease, replaced func(old []byte)) error {
	ids := slices.Collect(maps.Keys(changed))
	slices.SortFunc(ids, func(a, b int64) int { return cmp.Compare(uint64(a), uint64(b)) })
	for _, id := range ids {
		l := changed[id]
		key := leaseKey(id)
		replaced(tx.Record(key))
		if l.TTL == 0 {
			if err := tx.DeleteRecord(key); err != nil {
				return fmt.Errorf("delete TTL lease %x: %w", uint64(id), err)
			}
			continue
		}
		value := leaseValue(key, l)
		if err := tx.SetRecord(key, value); err != nil {
			return fmt.Errorf("write TTL lease %x: %w", uint64(id), err)
		}
		m.Records++
		m.Sum += uint64(binary.BigEndian.Uint32(value))
	}
	return nil
}

// addLease adds the record of a TTL lease to a state that nobody sees yet.
func (l *loader) addLease(key, value []byte) error {
	one, err := decodeLease(key, value)
	if err != nil {
		return err
	}
	if one.Grant > l.meta.Index {
		return fmt.Errorf("%w: record of TTL lease %x names a grant of index %d above the newest, %d", ErrDamaged, uint64(one.ID), one.Grant, l.meta.Index)
	}
	l.records++
	l.sum += uint64(binary.BigEndian.Uint32(value))
	l.st.leases.set(one)
	return nil
}

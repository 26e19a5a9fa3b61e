package store

import (
	"bytes"
	"testing"
)

// orderedTx fails a test if records are not written in their order.
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

// A checkpoint writes TTL leases in the order of their records. Each one out of order moves all
// that were written behind it.
func TestTTLLeasesAreSavedInOrder(t *testing.T) {
	var u unsaved
	const n = 1000
	for i := range int64(n) {
		u.setLease(TTLLease{ID: (i + 1) * 7919 * (1 - i%2*2), TTL: 10}) // half of them negative
	}
	tx := &orderedTx{t: t}
	if err := saveLeases(tx, &meta{}, u.leases, func([]byte) {}); err != nil || tx.n != n {
		t.Errorf("saveLeases() = %v with %d records, want %d", err, tx.n, n)
	}
}

package etcdfile

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// The fields of a TTL lease, which are numbers.
const (
	ttlID        = 1
	ttlGranted   = 2
	ttlRemaining = 3
)

// TTLLeases returns the TTL leases with what they were granted. What was left of one is
// passed over: it was so when a leader last said it, and all begin anew, as after the
// election of a leader.
func (f *File) TTLLeases() (all []store.TTLLease, err error) {
	err = boltdb.Guard(func() error {
		bucket := f.tx.Bucket(ttlBucket)
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(key, value []byte) error {
			l, err := decodeTTL(key, value)
			all = append(all, l)
			return err
		})
	})
	return all, err
}

func decodeTTL(key, value []byte) (store.TTLLease, error) {
	var l store.TTLLease
	for rest := value; len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 || kind != protowire.VarintType || field > ttlRemaining {
			return l, fmt.Errorf("%w: TTL lease %x has an unknown field", store.ErrDamaged, key)
		}
		x, m := protowire.ConsumeVarint(rest[n:])
		if m < 0 {
			return l, fmt.Errorf("%w: TTL lease %x is cut off", store.ErrDamaged, key)
		}
		rest = rest[n+m:]
		switch field {
		case ttlID:
			l.ID = int64(x)
		case ttlGranted:
			l.TTL = int64(x)
		}
	}
	if len(key) != 8 || int64(order.Uint64(key)) != l.ID || l.ID == 0 || l.TTL > store.MaxTTL {
		return l, fmt.Errorf("%w: TTL lease %x says ID %x and TTL %d, of at most %d", store.ErrDamaged, key, uint64(l.ID), l.TTL, int64(store.MaxTTL))
	}
	l.TTL = max(l.TTL, 1) // etcd, too, lengthens what is too short when it starts
	return l, nil
}

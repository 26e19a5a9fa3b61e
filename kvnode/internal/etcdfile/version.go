package etcdfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

var order = binary.BigEndian

// revision is the key of a record: main and sub revision of a write, 8 bytes each with a
// '_' between them, and a 't' behind if the write has deleted the key.
type revision struct {
	main      int64
	sub       uint32
	tombstone bool
}

const (
	revisionSize  = 8 + 1 + 8
	tombstoneMark = 't'
)

func parseRevision(key []byte) (revision, error) {
	if len(key) != revisionSize && len(key) != revisionSize+1 || key[8] != '_' || len(key) > revisionSize && key[revisionSize] != tombstoneMark {
		return revision{}, fmt.Errorf("%w: %q is no revision", store.ErrDamaged, key)
	}
	main, sub := order.Uint64(key), order.Uint64(key[9:])
	if main > math.MaxInt64 || sub > math.MaxUint32 {
		return revision{}, fmt.Errorf("%w: revision %d.%d is too high", store.ErrDamaged, main, sub)
	}
	return revision{int64(main), uint32(sub), len(key) > revisionSize}, nil
}

func (r revision) after(s revision) bool {
	return r.main > s.main || r.main == s.main && r.sub > s.sub
}

// records calls visit with each record in the order of writes. value is valid until the
// file is closed.
func (f *File) records(visit func(r revision, value []byte) error) error {
	f.passes++
	return boltdb.Guard(func() error {
		var last revision
		return f.tx.Bucket(keyBucket).ForEach(func(key, value []byte) error {
			r, err := parseRevision(key)
			if err == nil && !r.after(last) {
				err = fmt.Errorf("%w: revision %d.%d comes after %d.%d", store.ErrDamaged, r.main, r.sub, last.main, last.sub)
			}
			if err != nil {
				return err
			}
			last = r
			return visit(r, value)
		})
	})
}

// Versions is a store.Foreign's. A key whose TTL lease is not there is attached to none: a
// store would attach it to the next one of that ID, but only where it has been loaded since,
// so that the end of that one would delete the key at some members alone.
func (f *File) Versions(visit func(sub uint32, kv *mvccpb.KeyValue) error) error {
	s, h, err := f.look()
	if err != nil {
		return err
	}
	err = f.records(func(r revision, value []byte) error {
		h.take(r, value)
		kv, err := decode(r, value)
		if err != nil || kv == nil {
			return err
		}
		if len(s.detached) > 0 && s.detached[string(kv.GetKey())] == r {
			kv.Lease = 0
		}
		return visit(r.sub, kv)
	})
	if err == nil {
		s.hash, f.seen = h.sum.Sum32(), s
	}
	return err
}

// seen is what is known of a file once its records were read.
type seen struct {
	keys, versions int
	// detached has those keys, in their newest versions, whose TTL leases are not there.
	// Older versions may well name one that has ended.
	detached heads
	hash     uint32 // HashKV of the newest revision
}

// look reads the records for what has to be known before the first of them is passed on.
// While it does, all keys are in memory.
func (f *File) look() (*seen, *hasher, error) {
	all, err := f.TTLLeases()
	if err != nil {
		return nil, nil, err
	}
	granted := map[int64]bool{0: true}
	for _, l := range all {
		granted[l.ID] = true
	}
	s, c := &seen{detached: make(heads)}, census{compacted: f.Compacted, newest: make(heads)}
	err = f.records(func(r revision, value []byte) error {
		kv, err := decode(r, value)
		if err != nil {
			return err
		}
		key := string(keyOf(value))
		c.take(key, r)
		if kv == nil {
			return nil
		}
		s.versions++
		if len(s.detached) > 0 {
			delete(s.detached, key)
		}
		if !granted[kv.GetLease()] {
			s.detached[key] = r
		}
		return nil
	})
	h := f.newHasher(f.Revision, &c)
	s.keys = h.live
	if _, noted := c.newest[""]; noted { // a raised revision, which is no key
		s.keys--
	}
	return s, h, err
}

// decode returns what a record says, nil for nothing: etcdutl has restored a snapshot with
// a higher revision, and noted that by a record without a key.
func decode(r revision, value []byte) (*mvccpb.KeyValue, error) {
	kv := &mvccpb.KeyValue{}
	if err := proto.Unmarshal(value, kv); err != nil {
		return nil, fmt.Errorf("%w: revision %d.%d: %w", store.ErrDamaged, r.main, r.sub, err)
	}
	switch {
	case len(kv.ProtoReflect().GetUnknown()) > 0:
		return nil, fmt.Errorf("%w: revision %d.%d has a field that etcd %s does not", ErrRefused, r.main, r.sub, newestVersion)
	case len(value) == 0 && !r.tombstone:
		return nil, nil
	case len(kv.GetKey()) == 0:
		return nil, fmt.Errorf("%w: revision %d.%d is of no key", store.ErrDamaged, r.main, r.sub)
	case !bytes.Equal(kv.GetKey(), keyOf(value)):
		return nil, fmt.Errorf("%w: revision %d.%d does not begin with its key", store.ErrDamaged, r.main, r.sub)
	case r.tombstone:
		return &mvccpb.KeyValue{Key: kv.GetKey(), ModRevision: r.main}, nil
	case kv.GetModRevision() != r.main || kv.GetCreateRevision() < 1 || kv.GetCreateRevision() > r.main || kv.GetVersion() < 1:
		return nil, fmt.Errorf("%w: revision %d.%d of %q says mod revision %d, create revision %d and version %d",
			store.ErrDamaged, r.main, r.sub, kv.GetKey(), kv.GetModRevision(), kv.GetCreateRevision(), kv.GetVersion())
	default:
		return kv, nil
	}
}

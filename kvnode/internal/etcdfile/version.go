package etcdfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"math"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

var order = binary.BigEndian

// revision is the key of a record: main and sub revision of a write, 8 bytes each, separated by
// '_', and followed by 't' for a deletion.
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

// records calls visit with each record in the order of writes. value is valid until the file is
// closed.
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

// Versions calls visit as store.Foreign.Versions requires. It detaches a key from a TTL lease that does not exist.
// If a later lease got that ID, its end would delete the key on some members only.
func (f *File) Versions(visit func(sub uint32, kv *mvccpb.KeyValue) error) error {
	s, h, err := f.firstPass()
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
		s.hash, f.found = h.sum.Sum32(), s
	}
	return err
}

// findings are the results of the first pass over the records.
type findings struct {
	keys, versions int
	// detached holds the newest versions with a TTL lease that does not exist. Older versions may
	// name a lease that has ended.
	detached heads
	hash     uint32 // HashKV of the newest revision
}

// firstPass reads all records once, and collects what Versions needs before it can pass on the first
// one. It keeps all keys in memory.
func (f *File) firstPass() (*findings, *hasher, error) {
	all, err := f.TTLLeases()
	if err != nil {
		return nil, nil, err
	}
	granted := map[int64]bool{0: true}
	for _, l := range all {
		granted[l.ID] = true
	}
	s, c := &findings{detached: make(heads)}, census{compacted: f.Compacted, newest: make(heads)}
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
	if _, noted := c.newest[""]; noted { // a bumped revision is not a key
		s.keys--
	}
	return s, h, err
}

// decode decodes a record. It returns nil for an empty record: etcdutl snapshot restore
// --bump-revision writes one for the new revision.
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
		return nil, fmt.Errorf("%w: revision %d.%d has no key", store.ErrDamaged, r.main, r.sub)
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

// HashKV returns the hash that etcdctl endpoint hashkv --rev REVISION prints for the same state. It
// differs from the hash of a store with the same versions. For the last compacted revision, etcd
// returns the hash from before the compaction until it is restarted.
func (f *File) HashKV(at int64) (uint32, error) {
	if at < f.Compacted || at > f.Revision {
		return 0, fmt.Errorf("revision %d is not in the file, which has %d to %d", at, f.Compacted, f.Revision)
	}
	c := census{compacted: f.Compacted, newest: make(heads)}
	err := f.records(func(r revision, value []byte) error {
		if r.main <= at {
			c.take(string(keyOf(value)), r)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	h := f.newHasher(at, &c)
	err = f.records(func(r revision, value []byte) error {
		h.take(r, value)
		return nil
	})
	return h.sum.Sum32(), err
}

// hasher computes the hash of a revision from all records in order.
type hasher struct {
	at, compacted int64
	live          int
	replaced      map[revision]bool
	sum           hash.Hash32
}

// newHasher returns a hasher of the revision at. c is a census of all records up to it.
func (f *File) newHasher(at int64, c *census) *hasher {
	h := &hasher{at: at, compacted: f.Compacted, live: c.newest.live(), replaced: c.replaced, sum: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
	_, _ = h.sum.Write(keyBucket) // never fails
	return h
}

func (h *hasher) take(r revision, value []byte) {
	// A compacted version counts only if no later version up to the revision has replaced it.
	// If no key is left, all existing records count.
	stale := r.main <= h.compacted && h.live > 0 && (r.tombstone || h.replaced[r])
	if r.main > h.at || stale || r.main == h.compacted && r.tombstone {
		return
	}
	_, _ = h.sum.Write(r.key())
	_, _ = h.sum.Write(value)
}

// key is the reverse of parseRevision.
func (r revision) key() []byte {
	key := order.AppendUint64(make([]byte, 0, revisionSize+1), uint64(r.main))
	key = order.AppendUint64(append(key, '_'), uint64(r.sub))
	if r.tombstone {
		key = append(key, tombstoneMark)
	}
	return key
}

// census holds the newest record of each key up to a revision, and the compacted records that a
// later one has replaced. There are few of those, since a compaction deletes them.
type census struct {
	compacted int64
	newest    heads
	replaced  map[revision]bool
}

func (c *census) take(key string, r revision) {
	if before, is := c.newest[key]; is && before.main <= c.compacted {
		if c.replaced == nil {
			c.replaced = make(map[revision]bool)
		}
		c.replaced[before] = true
	}
	c.newest[key] = r
}

// heads maps keys to their newest versions, including tombstones.
type heads map[string]revision

func (h heads) live() (n int) {
	for _, r := range h {
		if !r.tombstone {
			n++
		}
	}
	return n
}

// keyOf returns the key in a record, its first field, or nil.
func keyOf(value []byte) []byte {
	field, kind, n := protowire.ConsumeTag(value)
	if n < 0 || field != 1 || kind != protowire.BytesType {
		return nil
	}
	key, _ := protowire.ConsumeBytes(value[n:])
	return key
}

// Summary describes a file.
type Summary struct {
	// The embedded Summary has etcd's hash (File.HashKV).
	store.Summary
	// StorageVersion is the storage version of the file, empty before etcd 3.6.
	StorageVersion string
	// Detached is the number of keys with a TTL lease that does not exist. An import attaches them to
	// no lease, so they stay.
	Detached int
	// Refused is the error of Check.
	Refused error
}

// Summary reads the file twice, or not at all after Versions.
func (f *File) Summary() (s Summary, err error) {
	s = Summary{StorageVersion: f.StorageVersion, Refused: f.Check()}
	s.Checkpoint = store.Checkpoint{Index: f.Index, Term: f.Term, Revision: f.Revision}
	granted, err := f.TTLLeases()
	if err != nil {
		return s, err
	}
	s.TTLLeases = len(granted)
	if f.found == nil {
		if err := f.Versions(func(uint32, *mvccpb.KeyValue) error { return nil }); err != nil {
			return s, err
		}
	}
	s.Versions, s.Keys, s.Detached = f.found.versions, f.found.keys, len(f.found.detached)
	s.Hash = store.Hash{CompactRevision: f.Compacted, HashRevision: f.Revision, Revision: f.Revision, Hash: f.found.hash}
	return s, nil
}

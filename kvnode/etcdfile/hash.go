package etcdfile

import (
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leaderlease/go/kvnode/store"
)

// HashKV returns what etcdctl's endpoint hashkv --rev REVISION says where etcd has the
// state of the file. A store's HashKV is another hash, of the same versions. Of the revision
// that was compacted last, etcd goes on saying the hash from before until it is restarted.
func (f *File) HashKV(at int64) (uint32, error) {
	if at < f.Compacted || at > f.Revision {
		return 0, fmt.Errorf("revision %d is not among %d to %d, which the file has", at, f.Compacted, f.Revision)
	}
	newest, err := f.newest(at)
	if err != nil {
		return 0, err
	}
	live := newest.live()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	_, _ = sum.Write(keyBucket) // never fails
	err = f.records(func(r revision, value []byte) error {
		// Of what was compacted, those versions count that no later one up to the revision
		// has replaced; if nothing is left, all that happens to be there.
		stale := r.main <= f.Compacted && live > 0 && (r.tombstone || newest[keyOf(value)] != r)
		if r.main > at || stale || r.main == f.Compacted && r.tombstone {
			return nil
		}
		_, _ = sum.Write(r.key())
		_, _ = sum.Write(value)
		return nil
	})
	return sum.Sum32(), err
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

// heads has the newest version of each key, tombstones included.
type heads map[string]revision

func (f *File) newest(at int64) (heads, error) {
	h := make(heads)
	return h, f.records(func(r revision, value []byte) error {
		if r.main <= at {
			h[keyOf(value)] = r
		}
		return nil
	})
}

func (h heads) live() (n int) {
	for _, r := range h {
		if !r.tombstone {
			n++
		}
	}
	return n
}

// keyOf returns the key in a record, the first field of which it is; empty if there is none.
func keyOf(value []byte) string {
	field, kind, n := protowire.ConsumeTag(value)
	if n < 0 || field != 1 || kind != protowire.BytesType {
		return ""
	}
	key, _ := protowire.ConsumeBytes(value[n:])
	return string(key)
}

// Summary describes a file.
type Summary struct {
	// Summary is as a store's, but for the hash, which is etcd's (File.HashKV).
	store.Summary
	// StorageVersion is the file's, empty before etcd 3.6.
	StorageVersion string
	// Detached is the number of keys whose TTL leases are not there. An import attaches them
	// to none, so that they stay.
	Detached int
	// Refused says why it cannot be imported, if so.
	Refused error
}

// Summary reads all of the file.
func (f *File) Summary() (s Summary, err error) {
	s = Summary{StorageVersion: f.StorageVersion, Refused: f.Check()}
	s.Checkpoint = store.Checkpoint{Index: f.Index, Term: f.Term, Revision: f.Revision}
	granted, err := f.TTLLeases()
	if err != nil {
		return s, err
	}
	s.TTLLeases = len(granted)
	newest := make(heads)
	err = f.records(func(r revision, value []byte) error {
		kv, err := decode(r, value)
		if kv != nil {
			s.Versions++
			newest[string(kv.GetKey())] = r
		}
		return err
	})
	if err != nil {
		return s, err
	}
	s.Keys = newest.live()
	detached, err := f.detached()
	if err != nil {
		return s, err
	}
	s.Detached = len(detached)
	s.Hash = store.Hash{CompactRevision: f.Compacted, HashRevision: f.Revision, Revision: f.Revision}
	s.Hash.Hash, err = f.HashKV(f.Revision)
	return s, err
}

package etcdfile

import (
	"fmt"
	"hash"
	"hash/crc32"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// HashKV returns what etcdctl's endpoint hashkv --rev REVISION says where etcd has the
// state of the file. A store's HashKV is another hash, of the same versions. Of the revision
// that was compacted last, etcd goes on saying the hash from before until it is restarted.
func (f *File) HashKV(at int64) (uint32, error) {
	if at < f.Compacted || at > f.Revision {
		return 0, fmt.Errorf("revision %d is not among %d to %d, which the file has", at, f.Compacted, f.Revision)
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

// hasher makes the hash of a revision out of all records in order.
type hasher struct {
	at, compacted int64
	live          int
	replaced      map[revision]bool
	sum           hash.Hash32
}

// newHasher has a census of the records up to a revision.
func (f *File) newHasher(at int64, c *census) *hasher {
	h := &hasher{at: at, compacted: f.Compacted, live: c.newest.live(), replaced: c.replaced, sum: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
	_, _ = h.sum.Write(keyBucket) // never fails
	return h
}

func (h *hasher) take(r revision, value []byte) {
	// Of what was compacted, those versions count that no later one up to the revision
	// has replaced; if nothing is left, all that happens to be there.
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

// census is of the records up to a revision: the newest of each key, and those up to the
// compacted revision that a later one has replaced. There are few of the latter, for a
// compaction removes them.
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

// heads has the newest version of each key, tombstones included.
type heads map[string]revision

func (h heads) live() (n int) {
	for _, r := range h {
		if !r.tombstone {
			n++
		}
	}
	return n
}

// keyOf returns the key in a record, the first field of which it is; nil if there is none.
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

// Summary reads all of the file twice, and nothing after Versions has.
func (f *File) Summary() (s Summary, err error) {
	s = Summary{StorageVersion: f.StorageVersion, Refused: f.Check()}
	s.Checkpoint = store.Checkpoint{Index: f.Index, Term: f.Term, Revision: f.Revision}
	granted, err := f.TTLLeases()
	if err != nil {
		return s, err
	}
	s.TTLLeases = len(granted)
	if f.seen == nil {
		if err := f.Versions(func(uint32, *mvccpb.KeyValue) error { return nil }); err != nil {
			return s, err
		}
	}
	s.Versions, s.Keys, s.Detached = f.seen.versions, f.seen.keys, len(f.seen.detached)
	s.Hash = store.Hash{CompactRevision: f.Compacted, HashRevision: f.Revision, Revision: f.Revision, Hash: f.seen.hash}
	return s, nil
}

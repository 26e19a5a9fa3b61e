package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash"
	"hash/crc32"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// castagnoli is the polynomial of hashes and of record checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashOfNothing is etcd's hash of an empty store. A hash is never 0, because tools take 0 for a
// missing answer.
var hashOfNothing = crc32.Checksum([]byte("key"), castagnoli)

// Hash is equal on members that applied the same entries.
type Hash struct {
	// Hash covers the versions up to HashRevision that are newer than CompactRevision or live
	// at it. It does not depend on what a member has freed or saved.
	Hash            uint32
	CompactRevision int64
	HashRevision    int64
	Revision        int64
}

// HashKV hashes all keys at revision, 0 meaning the newest. A negative revision has no keys, as in
// etcd.
func (s *Store) HashKV(revision int64) (Hash, error) {
	return retryCompacted(s, true, func(w view) (Hash, error) {
		compacted := w.st.compacted.Load()
		switch {
		case revision > 0 && revision < compacted:
			return Hash{}, rpctypes.ErrGRPCCompacted
		case revision > w.rev:
			return Hash{}, rpctypes.ErrGRPCFutureRev
		}
		h := Hash{CompactRevision: compacted, HashRevision: revision, Revision: w.rev}
		if revision == 0 {
			h.HashRevision = w.rev
		}
		var err error
		h.Hash, err = view{w.st, h.HashRevision}.hash(compacted)
		return h, err
	})
}

// hash hashes the versions up to the view's revision that a compaction at compacted keeps.
func (w view) hash(compacted int64) (uint32, error) {
	h := crc32.New(castagnoli)
	_, err := w.scanChains(context.Background(), nil, nil, func(c *chain) bool {
		for v := c.at(w.rev); v != nil; v = v.prev.Load() {
			if v.mod > compacted {
				hashVersion(h, v)
				continue
			}
			if !v.tombstone() {
				hashVersion(h, v)
			}
			break
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	// Another compaction may have freed versions that belong to the hash.
	if w.st.compacted.Load() != compacted {
		return 0, rpctypes.ErrGRPCCompacted
	}
	return cmp.Or(h.Sum32(), hashOfNothing), nil
}

// hashVersion hashes all fields of v. Lengths come before variable fields, so different versions
// give different bytes.
func hashVersion(h hash.Hash32, v *Version) {
	var buf [8 * 8]byte
	b := buf[:0]
	for _, x := range []int64{
		v.mod, int64(v.sub), v.GetCreateRevision(), v.GetVersion(), v.GetTTLLease(),
		int64(len(v.GetKey())), int64(len(v.GetValue())),
	} {
		b = binary.BigEndian.AppendUint64(b, uint64(x))
	}
	if v.tombstone() {
		b = append(b, 1)
	}
	// Writing to a hash never fails.
	_, _ = h.Write(b)
	_, _ = h.Write(v.GetKey())
	_, _ = h.Write(v.GetValue())
}

package store

import (
	"cmp"
	"fmt"
	"math"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// NewCluster describes the cluster that begins with a snapshot of another one.
type NewCluster struct {
	// Members replace those of the snapshot, and ConfState its raft configuration.
	Members   []Member
	ConfState *raftpb.ConfState
	// BumpRevision is added to the newest revision. So clients that have seen newer revisions
	// than the snapshot's do not see these again with other contents.
	BumpRevision int64
	// MarkCompacted marks all revisions below the newest as compacted, so watches that start
	// there fail and start over.
	MarkCompacted bool
}

// Bootstrap turns the checkpoint that b holds, which is a snapshot, into the first one of another
// cluster, durably. It keeps index, term, keys, revisions and TTL leases, and drops alarms, which
// are about the old members. It reads everything first, so it leaves a damaged snapshot as it is.
// It returns ErrNoCheckpoint if there is none.
func Bootstrap(b Backend, n NewCluster) (c Checkpoint, err error) {
	if _, c, err = load(b); err != nil {
		return Checkpoint{}, err
	}
	if c.Index == 0 {
		return Checkpoint{}, ErrNoCheckpoint
	}
	err = b.Update(func(tx Tx) error {
		m, err := decodeMeta(tx.Meta())
		if err == nil {
			err = n.change(&m)
		}
		if err != nil {
			return err
		}
		if c, err = m.checkpoint(); err != nil {
			return err
		}
		return m.save(tx)
	})
	return c, err
}

// maxRevision is the newest revision with which a cluster begins. A million writes a second take
// 146,000 years from there to the last revision. With a higher limit, a mistyped number could make
// revisions overflow after a few writes.
const maxRevision = math.MaxInt64 / 2

// maxIndex is the newest index, and the newest term, with which a cluster begins: both grow, and
// must not overflow.
const maxIndex = math.MaxInt64 / 2

// change makes m that of the new cluster.
func (n *NewCluster) change(m *meta) error {
	switch {
	case m.Index > maxIndex || m.Term > maxIndex:
		return fmt.Errorf("index %d of term %d leaves too few for a log: a cluster begins with %d at most", m.Index, m.Term, int64(maxIndex))
	case m.Revision > maxRevision:
		return fmt.Errorf("revision %d leaves too few for writes: a cluster begins with %d at most", m.Revision, int64(maxRevision))
	case n.BumpRevision < 0 || n.BumpRevision > maxRevision-m.Revision:
		return fmt.Errorf("revision %d cannot be raised by %d: it must be from 0 to %d", m.Revision, n.BumpRevision, maxRevision-m.Revision)
	}
	conf, err := proto.Marshal(n.ConfState)
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	m.ConfState, m.Members, m.Removed, m.Alarms = conf, n.Members, nil, nil
	m.Revision += n.BumpRevision
	if n.MarkCompacted {
		m.Compacted = m.Revision
	}
	return nil
}

// importBytes is about how much one commit of an import writes. More: the pages that it
// changes take so much memory. Less: more commits, each of which waits for the disk.
const importBytes = 64 << 20

// Foreign is the state of another program at one moment, in the terms of a store.
type Foreign struct {
	// Index and Term, at least 1, are what the first entry after it goes on from.
	Index, Term uint64
	// Revision is the newest, and Compacted the newest that was compacted, -1 if none was.
	Revision, Compacted int64
	TTLLeases           []TTLLease
	// Versions calls visit with each version in the order of writes, and returns its error.
	// sub numbers those of one revision; a tombstone has key, mod revision and nothing
	// else. What visit is given it keeps.
	Versions func(visit func(sub uint32, kv *mvccpb.KeyValue) error) error
	// CommitBytes is how much one commit writes, about. Default: 64 MiB.
	CommitBytes int64
}

// Import makes the first checkpoint, without members, of a backend that holds nothing.
// If it fails, the backend holds none: it has index 0 until all is there.
func Import(b Backend, f *Foreign) error {
	m := meta{Format: FormatFirst, Revision: 1, Compacted: -1}
	var part unsaved
	for _, l := range f.TTLLeases {
		part.setLease(l)
	}
	save := func() error {
		done := part
		part = unsaved{}
		in := getSlab()
		defer in.release()
		return b.Update(func(tx Tx) error { return saveTx(tx, &m, &done, in) })
	}
	err := f.Versions(func(sub uint32, kv *mvccpb.KeyValue) error {
		v := &Version{
			of: &chain{key: kv.GetKey()}, sub: sub, mod: kv.GetModRevision(), create: kv.GetCreateRevision(),
			number: kv.GetVersion(), lease: kv.GetLease(),
		}
		v.setValue(kv.GetValue())
		m.Revision = max(m.Revision, v.mod)
		part.versions = append(part.versions, v)
		if part.bytes += v.cost(); part.bytes < cmp.Or(f.CommitBytes, importBytes) {
			return nil
		}
		return save()
	})
	if err != nil {
		return err
	}
	m.Index, m.Term, m.Revision, m.Compacted = f.Index, f.Term, f.Revision, f.Compacted
	return save()
}

package store

import (
	"cmp"
	"fmt"
	"math"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// BootstrapConfig configures Bootstrap: it describes a cluster that starts from a snapshot of another one.
type BootstrapConfig struct {
	// Members and ConfState replace those of the snapshot.
	Members   []Member
	ConfState *raftpb.ConfState
	// BumpRevision is added to the newest revision, so clients that have seen revisions newer
	// than the snapshot do not see them again with other contents.
	BumpRevision int64
	// MarkCompacted marks all revisions below the newest one as compacted, so watches that
	// start there fail and start over.
	MarkCompacted bool
}

// Bootstrap turns the snapshot in b into the first checkpoint of another cluster, durably. It keeps
// index, term, keys, revisions and TTL leases, and drops alarms, which are about the old members.
// It reads everything first, so a damaged snapshot stays as it is. It returns ErrNoCheckpoint for
// an empty snapshot.
func Bootstrap(b Backend, cfg BootstrapConfig) (c Checkpoint, err error) {
	if _, c, err = load(b); err != nil {
		return Checkpoint{}, err
	}
	if c.Index == 0 {
		return Checkpoint{}, ErrNoCheckpoint
	}
	err = b.Update(func(tx Tx) error {
		m, err := decodeMeta(tx.Meta())
		if err == nil {
			err = cfg.change(&m)
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

// maxRevision is the highest revision that a cluster may start with. A million writes per second
// take 146,000 years from there to the last revision. With a higher limit, a mistyped number could
// make revisions overflow soon.
const maxRevision = math.MaxInt64 / 2

// maxIndex is the highest index, and the highest term, that a cluster may start with, so that
// neither overflows later.
const maxIndex = math.MaxInt64 / 2

// change makes m the meta value of the new cluster.
func (cfg *BootstrapConfig) change(m *meta) error {
	switch {
	case m.Index > maxIndex || m.Term > maxIndex:
		return fmt.Errorf("the state has index %d and term %d, and a new cluster can start with at most %d", m.Index, m.Term, int64(maxIndex))
	case m.Revision > maxRevision:
		return fmt.Errorf("the state is at revision %d, and a new cluster can start with at most %d", m.Revision, int64(maxRevision))
	case cfg.BumpRevision < 0 || cfg.BumpRevision > maxRevision-m.Revision:
		return fmt.Errorf("cannot raise revision %d by %d: give a number from 0 to %d", m.Revision, cfg.BumpRevision, maxRevision-m.Revision)
	}
	conf, err := proto.Marshal(cfg.ConfState)
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	m.ConfState, m.Members, m.Removed, m.Alarms = conf, cfg.Members, nil, nil
	m.Revision += cfg.BumpRevision
	if cfg.MarkCompacted {
		m.Compacted = m.Revision
	}
	return nil
}

// importBytes is the approximate size of one commit of an import. Larger commits need more memory
// for changed pages; smaller ones sync more often.
const importBytes = 64 << 20

// Foreign is the data of another program, such as etcd, that a store imports.
type Foreign struct {
	// The log of the new cluster starts after Index, in Term or later. Both are at least 1.
	Index, Term uint64
	// Revision is the newest revision, and Compacted the newest compacted one, -1 for none.
	Revision, Compacted int64
	TTLLeases           []TTLLease
	// Versions calls visit for each version in the order of writes, and returns its error. sub
	// numbers the versions of one revision. A tombstone has a key and a mod revision only.
	// visit keeps its arguments.
	Versions func(visit func(sub uint32, kv *mvccpb.KeyValue) error) error
	// CommitBytes is the approximate size of one commit. Default: 64 MiB.
	CommitBytes int64
}

// Import writes the first checkpoint, without members, to an empty backend. If it fails, the
// backend has no checkpoint: only the last commit sets the index.
func Import(b Backend, f *Foreign) error {
	m := meta{ClusterVersion: ClusterVersionFirst, Revision: 1, Compacted: -1}
	var part changes
	for _, l := range f.TTLLeases {
		part.setLease(l)
	}
	save := func() error {
		done := part
		part = changes{}
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

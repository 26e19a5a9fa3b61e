package store

import (
	"fmt"
	"math"

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

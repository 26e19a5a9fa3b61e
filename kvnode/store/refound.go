package store

import (
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Refounding says what becomes of a snapshot that another cluster begins with.
type Refounding struct {
	// Members take the place of all that the snapshot knows, and ConfState that
	// of its configuration.
	Members   []Member
	ConfState *raftpb.ConfState
	// BumpRevision is added to the newest revision, so that clients that have
	// seen newer revisions of the old cluster than the snapshot has do not meet
	// them again with other contents.
	BumpRevision int64
	// MarkCompacted counts everything below the newest revision as compacted:
	// who watches from there on is told to begin anew.
	MarkCompacted bool
}

// Refound turns the checkpoint that b holds, which is a snapshot, into the first one
// of another cluster, durably. Index, term, keys, revisions and TTL leases stay;
// alarms were about the old members and go. It reads everything first: what is
// damaged is refused and left as it is. It returns ErrNoCheckpoint if there is none.
func Refound(b Backend, r Refounding) (c Checkpoint, err error) {
	if _, c, err = load(b); err != nil {
		return Checkpoint{}, err
	}
	if c.Index == 0 {
		return Checkpoint{}, ErrNoCheckpoint
	}
	err = b.Update(func(tx Tx) error {
		m, err := decodeMeta(tx.Meta())
		if err == nil {
			err = r.change(&m)
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

// maxRevision is the newest that a cluster begins with. A million writes a second take
// 146,000 years from there to the last. More: a number with some digits too many is taken,
// and after a few writes revisions are below zero, and nothing is read any more.
const maxRevision = math.MaxInt64 / 2

// maxIndex is the newest log position, and the newest term, that a cluster begins with. The
// log counts on from there, and must not overflow.
const maxIndex = math.MaxInt64 / 2

// change makes m the new cluster's.
func (r *Refounding) change(m *meta) error {
	switch {
	case m.Index > maxIndex || m.Term > maxIndex:
		return fmt.Errorf("index %d of term %d leaves too few for a log: a cluster begins with %d at most", m.Index, m.Term, int64(maxIndex))
	case m.Revision > maxRevision:
		return fmt.Errorf("revision %d leaves too few for writes: a cluster begins with %d at most", m.Revision, int64(maxRevision))
	case r.BumpRevision < 0 || r.BumpRevision > maxRevision-m.Revision:
		return fmt.Errorf("revision %d cannot be raised by %d: it must be from 0 to %d", m.Revision, r.BumpRevision, maxRevision-m.Revision)
	}
	conf, err := proto.Marshal(r.ConfState)
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	m.ConfState, m.Members, m.Removed, m.Alarms = conf, r.Members, nil, nil
	m.Revision += r.BumpRevision
	if r.MarkCompacted {
		m.Compacted = m.Revision
	}
	return nil
}

package leasetrace

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// isDeathNotice reports whether e is the request that a member makes for itself when a death
// notice voids its promise. No other member has sent it: a leader never releases up to Forever.
func isDeathNotice(e *Event) bool {
	return e.Kind == KindRequest && e.Message == raftpb.MsgTimeoutNow && e.Instant == core.Forever
}

// processOf is a process ID with the number that stands for the process in e. Traces hold no IDs.
func processOf(e *Event) (id core.ProcessID) {
	binary.BigEndian.PutUint64(id[:], e.Number)
	return id
}

// processDied replays a death notice (V8).
func (r *replay) processDied(e *Event) error {
	rel, void := r.guard.ProcessDied(e.Peer, processOf(e))
	if void {
		r.died[rel.Term] = e.Peer
	}
	return differ("the promise is void", voided{e.OK, e.Term}, voided{void, rel.Term})
}

// deathWasReported requires a death notice before the request that it causes.
func (r *replay) deathWasReported(e *Event) error {
	if isDeathNotice(e) && r.died[e.Number] != e.Peer {
		return fmt.Errorf("it takes %x, the leader of term %d, for dead, but no death notice has voided a promise to it", e.Peer, e.Number)
	}
	return nil
}

type voided struct {
	void bool
	term uint64
}

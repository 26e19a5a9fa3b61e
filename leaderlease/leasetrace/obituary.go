package leasetrace

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// bereaved reports whether e lets in what the member has made of an obituary for itself, and
// nobody has sent: no leader releases for ever.
func bereaved(e *Event) bool {
	return e.Kind == KindRequest && e.Message == raftpb.MsgTimeoutNow && e.Instant == core.Forever
}

// processOf is a process ID with the number that stands for the process in e. Traces hold no IDs.
func processOf(e *Event) (id core.ProcessID) {
	binary.BigEndian.PutUint64(id[:], e.Number)
	return id
}

// obituary replays what an obituary voids (V8).
func (r *replay) obituary(e *Event) error {
	rel, void := r.guard.ProcessDied(e.Peer, processOf(e))
	if void {
		r.died[rel.Term] = e.Peer
	}
	return differ("the promise is void", voided{e.OK, e.Term}, voided{void, rel.Term})
}

// mourns wants an obituary before what was made of one.
func (r *replay) mourns(e *Event) error {
	if bereaved(e) && r.died[e.Number] != e.Peer {
		return fmt.Errorf("it takes %x for dead, who led term %d, and no obituary has voided a promise to it", e.Peer, e.Number)
	}
	return nil
}

type voided struct {
	void bool
	term uint64
}

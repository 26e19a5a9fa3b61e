package leasetrace

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
)

// bereaved reports whether e lets in what the member has made of an obituary for itself, and
// nobody has sent: no leader releases for ever.
func bereaved(e *leaderlease.TraceEvent) bool {
	return e.Kind == leaderlease.TraceRequest && e.Message == raftpb.MsgTimeoutNow && e.Instant == core.Forever
}

// obituary replays what an obituary voids (V8).
func (r *replay) obituary(e *leaderlease.TraceEvent) error {
	rel, void := r.guard.Obituary(e.Peer, core.Process(e.Number))
	if void {
		r.died[rel.Term] = e.Peer
	}
	return differ("the promise is void", voided{e.OK, e.Term}, voided{void, rel.Term})
}

type voided struct {
	void bool
	term uint64
}

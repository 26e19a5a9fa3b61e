package kvnode

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// lastWord is for how long a member that ends waits until it has resigned. Shorter: a busy
// machine does not get the word out, and the others wait until their promises have ended.
// Longer: a disk that hangs, or a peer, keeps alive what is dead.
const lastWord = 50 * time.Millisecond

// resign is the last that the loop does, also where it panics. Whatever has ended it, this member
// does not hear any more that it was deposed: if it leads, it hands back what the others have
// promised it, to the one that has most of the log, which campaigns at once (L6b). Where leadership was
// transferred before, there is nothing to hand back.
func (l *raftLoop) resign() {
	defer close(l.resigned)
	to := l.lastHeir()
	m, led := l.lease.Resign(to)
	if !led {
		return
	}
	l.links.Send([]*raftpb.Message{m})
	written := l.links.Flush(to, lastWord)
	l.log.Warn("resigned", "to", l.book.called(to), "term", m.GetTerm(), "written", written)
}

// lastHeir is whom a leader that ends names, raft.None if nobody can take over at once. Raft forgets
// now and then who answers, until they do again; whoever is connected will do then. Whom raft has asked
// already, as has all of the log, comes first: it campaigns, and another would split the vote with it.
func (l *raftLoop) lastHeir() (to uint64) {
	heirs, asked := l.voters(raft.None), l.raw.BasicStatus().LeadTransferee
	for i := range heirs {
		if heirs[i].id == asked && heirs[i].match >= l.last.Load() {
			heirs[i].tries = -1
		}
	}
	if to, _ = chooseHeir(l.transfers.reached(heirs, raft.None)); to != raft.None {
		return to
	}
	for i := range heirs {
		heirs[i].answers = true
	}
	to, _ = chooseHeir(l.transfers.reached(heirs, raft.None))
	return to
}

// awaitResignation waits until the loop has resigned, unless it hangs: its lease and its links
// are closed next.
func (n *Node) awaitResignation() {
	select {
	case <-n.loop.resigned:
	case <-time.After(2 * lastWord):
	}
}

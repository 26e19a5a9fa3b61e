package detector

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Obituary tells that the leader's process is dead, and that this member's promise to it is void: a
// proof, of which Lease.Obituary has made m. Ask Poll next. The first to have its turn
// does so at once, silent or not, and is to campaign by m, which needs no pre-votes
// and which the votes of the others need not wait for; so is the next, a turn later, if nobody has asked for
// votes by then. After that it is as after a hint. Only a leader of a later term ends it: raft takes
// the dead for its leader once more if it steps what they have sent.
//
// Where Lease.Obituary has voided nothing, call Gone: the word may be of a former process.
func (d *Detector) Obituary(m *raftpb.Message, now time.Time) {
	peer := m.GetFrom()
	d.learnt.convicts(peer)
	if peer != d.leader || peer == raft.None || peer == d.cfg.Self || d.hint.way == Obituary {
		return
	}
	d.hint = suspicion{way: Obituary, at: now, term: m.GetTerm()}
	d.stats.Hints[Obituary]++
}

// forces reports whether the member is to campaign by the message of an obituary, in its first turn.
func (d *Detector) forces(k Known) bool {
	return d.hint.way == Obituary && d.hint.turn == 0 && !k.Candidate
}

// firstTurn is how long the first turns last. Twice as long after an obituary: no pre-vote tells the next
// member that another stands, and before its request leaves that one's term is on its disk. Shorter: where a disk
// takes 20 ms the vote is split. Longer: fail-over takes longer if the first is down.
func (d *Detector) firstTurn() time.Duration {
	if d.hint.way == Obituary {
		return 2 * d.cfg.Turn
	}
	return d.cfg.Turn
}

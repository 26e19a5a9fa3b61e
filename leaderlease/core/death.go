package core

import "slices"

// ProcessID identifies one process of one member. The zero value is an unknown process. No two
// processes of a member may share an ID, so it is random, or the hash of something random.
//
// An ID is public: each peer that the process connects to learns it. Whatever lets a caller of
// ProcessDied believe that the process is dead must be more than the ID.
type ProcessID [16]byte

// graves is how many dead processes a guard remembers. What one has sent is read within
// moments of its death. Fewer: where several die at once, what the first has sent binds this
// node once more, for as long as a promise lasts.
const graves = 4

// grave is a dead process of a member. The member is part of the key: a death of a process of one
// member never refuses a promise to another member.
type grave struct {
	member  uint64
	process ProcessID
}

// dead are the processes that have died last, the newest first. An unknown process is no entry.
type dead [graves]grave

func (d *dead) has(g grave) bool { return g.process != (ProcessID{}) && slices.Contains(d[:], g) }

func (d *dead) bury(g grave) {
	if d.has(g) {
		return
	}
	copy(d[1:], d[:])
	d[0] = g
}

// ProcessDied says that a process of leader will never execute another instruction (A3'). So
// no lease of that process relies on a promise any more. If this node's newest promise is to
// that very process, in a term that raft has not left yet, the promise is void (V8). ProcessDied
// then returns the release that this amounts to, and true. The release stays right, for all
// voters: a term and a leader name one process (V9), which has sent its last probe. ProcessDied
// does not lift the restart hold, since the promises of this node's former process are unknown.
//
// Messages that the dead process has sent, and that arrive later, get no promise.
func (g *Guard) ProcessDied(leader uint64, died ProcessID) (Release, bool) {
	if leader == 0 || died == (ProcessID{}) {
		return Release{}, false
	}
	g.dead.bury(grave{leader, died})
	p := &g.promise
	if p.leader != leader || p.process != died || p.term < g.term {
		return Release{}, false
	}
	p.until, g.owed = 0, 0
	rel := Release{Term: p.term, At: Forever}
	g.remember(rel)
	return rel, true
}

package core

import "slices"

// Process names one process of one member: a number that it draws at random, or is given,
// when it starts. 0 is one that is not known.
type Process uint64

// graves is how many dead processes a guard remembers. What one has sent is read within
// moments of its death. Fewer: where several die at once, what the first has sent binds this
// node once more, for as long as a promise lasts.
const graves = 4

// grave names a dead process by its member, too: who tells of another's death, or has drawn
// the same number, has nobody else's promises refused.
type grave struct {
	member  uint64
	process Process
}

// dead are the processes that have died last, the newest first; a process 0 is none.
type dead [graves]grave

func (d *dead) has(g grave) bool { return g.process != 0 && slices.Contains(d[:], g) }

func (d *dead) bury(g grave) {
	if d.has(g) {
		return
	}
	copy(d[1:], d[:])
	d[0] = g
}

// Obituary tells that a process of leader has died: it will never execute another
// instruction (A3'). So it relies on no promise, and if this node's newest is one to that
// very process, in a term that raft has not left yet, the promise is void (V8). What Obituary
// returns then, and true, is so for ever, for all voters: a term and a leader name one process
// (V9), which has sent its last probe. No obituary lifts the restart hold: nobody knows whom this
// node's former process has promised something.
//
// Whatever a dead process has sent, and is read later, promises nothing.
func (g *Guard) Obituary(leader uint64, died Process) (Release, bool) {
	if leader == 0 || died == 0 {
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

package leasetest

import (
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// judge checks a play against the claim of docs/design.md. No view passes its check after
// an election in a later term is won; a term has one leading process; and the index of a
// view that passes is not below any applied index.
type judge struct {
	nodes []*Node
	// led is the winner of each term, wonTerm the newest term that each process has won,
	// newest the newest term that is won.
	led     map[uint64]process
	wonTerm map[process]uint64
	newest  uint64
	// applied is the newest applied index of all nodes.
	applied uint64
	// resigned are the processes that have resigned, resignedAt is the time of the last
	// resignation.
	resigned   map[process]bool
	resignedAt time.Duration
	// doubtful is set if a clock breaks the assumptions, so that only rounds are checked.
	doubtful bool

	bad   string
	goals uint64
}

type process struct {
	id  uint64
	run int
}

func (j *judge) watch(c *Cluster) {
	j.nodes, j.led, j.wonTerm, j.resigned = c.nodes, make(map[uint64]process), make(map[process]uint64), make(map[process]bool)
	won := c.OnLeader
	c.OnLeader = func(n *Node, term uint64) {
		j.won(n, term)
		won(n, term)
	}
	c.OnApply = func(_ *Node, e *raftpb.Entry, _ Outcome) { j.applied = max(j.applied, e.GetIndex()) }
	c.OnDeliver = func(*Node, *raftpb.Message) { j.check() }
	c.OnReady = func(*Node, []*raftpb.Message) { j.check() }
}

func (j *judge) won(n *Node, term uint64) {
	p := process{n.ID, n.run}
	if first, again := j.led[term]; again && first != p {
		j.fail("process %d of node %d wins term %d, which process %d of node %d has won", p.run, p.id, term, first.run, first.id)
	}
	j.led[term], j.wonTerm[p] = p, term
	j.newest = max(j.newest, term)
	j.check()
}

// check checks each view as a reader does.
func (j *judge) check() {
	if j.doubtful {
		return
	}
	for _, n := range j.nodes {
		if !n.up || n.paused || n.lease == nil {
			continue
		}
		index, s := n.lease.TryRead()
		if s != leaderlease.StatusValid {
			continue
		}
		if term := j.wonTerm[process{n.ID, n.run}]; term < j.newest {
			j.fail("node %d holds the lease of term %d when term %d is won", n.ID, term, j.newest)
		}
		if j.resigned[process{n.ID, n.run}] {
			j.fail("node %d holds a lease, and has resigned", n.ID)
		}
		if index < j.applied {
			j.fail("node %d reads under the lease up to index %d, and %d is applied", n.ID, index, j.applied)
		}
	}
}

func (j *judge) fail(format string, v ...any) {
	if j.bad == "" {
		j.bad = fmt.Sprintf(format, v...)
	}
}

// after checks the output of a directive.
func (j *judge) after(out string) {
	j.check()
	for line := range strings.Lines(out) {
		stale := strings.Contains(line, "STALE") && (!j.doubtful || !strings.Contains(line, "by lease"))
		if stale || strings.Contains(line, "WRONG") {
			j.fail("%s", strings.TrimSpace(line))
		}
	}
}

// resigns records resignations, by the output of a directive.
func (p *play) resigns(out string) {
	for _, n := range p.c.nodes {
		if strings.HasSuffix(out, fmt.Sprintf(": node %d resigns\n", n.ID)) {
			run := process{n.ID, n.run}
			p.resigned[run], p.resignedAt = true, p.c.Now()
			if p.wonTerm[run] == 0 {
				p.fail("node %d resigns, and has never led", n.ID)
			}
		}
	}
}

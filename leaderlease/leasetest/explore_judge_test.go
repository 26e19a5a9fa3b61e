package leasetest

import (
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// judge holds a play against the claim of docs/design.md: no view passes its check
// when somebody has won an election in a later term; what a term and a leader name
// is one process; and what a view that passes says is committed lacks nothing that
// anybody has applied.
type judge struct {
	nodes []*Node
	// led is who won a term, reign the newest term that a node's process has won,
	// newest the newest that anybody has.
	led    map[uint64]process
	reign  map[process]uint64
	newest uint64
	// applied is the newest index that anybody has applied.
	applied uint64
	// resigned are the processes that have resigned, word is when the last one has.
	resigned map[process]bool
	word     time.Duration
	// doubtful: some clock breaks the assumptions, so only rounds are trusted.
	doubtful bool

	bad   string
	goals uint64
}

type process struct {
	id  uint64
	run int
}

func (j *judge) watch(c *Cluster) {
	j.nodes, j.led, j.reign, j.resigned = c.nodes, make(map[uint64]process), make(map[process]uint64), make(map[process]bool)
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
	j.led[term], j.reign[p] = p, term
	j.newest = max(j.newest, term)
	j.check()
}

// check looks at each view there is, as a reader would.
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
		if term := j.reign[process{n.ID, n.run}]; term < j.newest {
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

// after judges what a directive has printed.
func (j *judge) after(out string) {
	j.check()
	for line := range strings.Lines(out) {
		stale := strings.Contains(line, "STALE") && (!j.doubtful || !strings.Contains(line, "by lease"))
		if stale || strings.Contains(line, "WRONG") {
			j.fail("%s", strings.TrimSpace(line))
		}
	}
}

// resigns notes who has resigned, by what a directive has printed.
func (p *play) resigns(out string) {
	for _, n := range p.c.nodes {
		if strings.HasSuffix(out, fmt.Sprintf(": node %d resigns\n", n.ID)) {
			run := process{n.ID, n.run}
			p.resigned[run], p.word = true, p.c.Now()
			if p.reign[run] == 0 {
				p.fail("node %d resigns, and has never led", n.ID)
			}
		}
	}
}

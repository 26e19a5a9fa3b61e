package leasetest

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/leaderlease/go/leaderlease"
)

// play is a script that is being played and judged.
type play struct {
	script
	judge
	t *testing.T
	// misled is set if a node embeds its Lease wrongly. missed is a node with a Lease that
	// has reported the misuse.
	misled bool
	missed uint64
}

// pinned is the randomness of every play: the one that RunScript pins, so that what a
// search finds plays the same way as a file.
type pinned struct{ *mathrand.ChaCha8 }

func (p pinned) rewind() { p.Seed([32]byte{1}) }

// pin replaces crypto/rand, where raft draws its election timeouts, until t ends.
// Cryptotest would remember each of a million rewinds.
func pin(t *testing.T) pinned {
	t.Helper()
	p := pinned{mathrand.NewChaCha8([32]byte{1})}
	before := rand.Reader
	rand.Reader = p
	t.Cleanup(func() { rand.Reader = before })
	return p
}

// parse reads directives, one a line.
func parse(t *testing.T, lines []string) (ds []*datadriven.TestData) {
	t.Helper()
	for _, line := range lines {
		cmd, args, err := datadriven.ParseLine(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		ds = append(ds, &datadriven.TestData{Pos: line, Cmd: cmd, CmdArgs: args})
	}
	return ds
}

// do plays one directive and checks the result.
func (p *play) do(d *datadriven.TestData) {
	p.t.Helper()
	p.misled = p.misled || d.Cmd == "mistake"
	out := p.run(p.t, d)
	if d.Cmd == "new" {
		p.watch(p.c)
		p.watchVotes()
		if *exploreRules {
			p.guards()
		}
	}
	p.resigns(out)
	p.after(out)
	p.heard(out)
	p.checkPromises(d)
}

// checkPromises checks what a directive promises: no view passes once its lease is given
// up, and no node asks for a round without a read.
func (p *play) checkPromises(d *datadriven.TestData) {
	for _, n := range p.c.nodes {
		if !n.up || n.lease == nil {
			continue
		}
		if p.misled && n.lease.Info().Err != nil {
			p.missed = n.ID
		}
		if len(d.CmdArgs) > 0 && d.CmdArgs[0].Key == fmt.Sprint(n.ID) {
			p.givesUp(n, d.Cmd)
		}
		if p.reads == 0 && n.lease.Stats().Rounds > 0 {
			p.fail("node %d asks for a round without a read", n.ID)
		}
	}
	p.endsReads(d)
}

// givesUp checks a directive that gives up a node's lease.
func (p *play) givesUp(n *Node, cmd string) {
	if (cmd == "close" || cmd == "invalidate") && n.Valid() {
		p.fail("node %d: %s, and the lease is valid", n.ID, cmd)
	}
	if cmd == "close" && !closed(n.lease) {
		p.fail("node %d: close, and a Watch that begins now does not end", n.ID)
	}
}

// endsReads checks that no read waits in vain: after its context has ended, or after its
// node has changed the leader or the term.
func (p *play) endsReads(d *datadriven.TestData) {
	if d.Cmd == "read" && d.HasArg("cancel") && p.open[p.reads].node != 0 {
		if arg, _ := d.Arg("cancel"); arg.Vals[0] == "early" {
			p.fail("a read waits after its context has ended")
		}
	}
	for seq, o := range p.open {
		n := p.c.Node(o.node)
		if n == nil || !n.up || n.run != o.run || n.lease == nil {
			continue
		}
		i := n.lease.Info()
		if i.Applied >= i.Commit && (i.Term != o.term || i.Leader != o.leader) {
			p.fail("read %d of node %d waits for leader %d of term %d, but the node follows %d in term %d", seq, n.ID, o.leader, o.term, i.Leader, i.Term)
		}
	}
}

// closed reports whether a Watch that begins now is over.
func closed(l *leaderlease.Lease) bool {
	events, stop := l.Watch()
	defer stop()
	<-events
	select {
	case _, more := <-events:
		return !more
	default:
		return false
	}
}

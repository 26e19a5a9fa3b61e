package leasetest

import (
	"crypto/rand"
	"flag"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/leaderlease/go/leaderlease"
)

var (
	scriptFile    = flag.String("script", "", "the script that TestScript plays")
	exploreRules  = flag.Bool("explore.rules", true, "judge V3 and V4 by themselves, too, and not by the claim only")
	exploreDeeper = flag.Int("explore.deeper", 0, "take so many steps more in each search than it wants")
	explorePlays  = flag.Int("explore.plays", math.MaxInt, "play so many scripts in each search")
	exploreScript = flag.String("explore.script", "", "write the script that goes wrong, if one is found, to this file")
	exploreOnly   = flag.String("explore.only", "", "the search to make, by its name, instead of all")
)

// TestExplore plays every script of a few steps on the real Lease and the real raft. No
// script may break a rule, and each search must reach its goals.
func TestExplore(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var goals uint64
	states, plays := 0, 0
	for i := range menus {
		m := &menus[i]
		if *exploreOnly != "" && m.name != *exploreOnly {
			continue
		}
		w := newWalk(t, m)
		depth := m.depth + *exploreDeeper
		if shortened() {
			depth = 1
		}
		w.search(depth, *explorePlays)
		t.Logf("%s", w.report())
		if w.bad != "" {
			w.tell()
		}
		states, plays, goals = states+w.states, plays+w.plays, goals|w.goals
		for _, g := range m.never {
			if w.goals&(1<<g) != 0 {
				t.Errorf("GOAL %q in %s, where it must not be", goalNames[g], m.name)
			}
		}
		for _, g := range m.goals {
			if w.goals&(1<<g) == 0 && !shortened() {
				t.Errorf("GOAL %q in %s", goalNames[g], m.name)
			}
		}
	}
	t.Logf("%d states, %d plays", states, plays)
	if missing := uint64(1<<numGoals-1) &^ goals; *exploreOnly == "" && !shortened() && missing != 0 {
		t.Errorf("goals %b are in no search", missing)
	}
}

// shortened reports whether searches are too short to reach every goal.
func shortened() bool { return testing.Short() }

// tell ends the test with the script that goes wrong.
func (w *walk) tell() {
	w.t.Helper()
	script := w.script(w.path)
	if *exploreScript != "" {
		if err := os.WriteFile(*exploreScript, []byte(script), 0o600); err != nil {
			w.t.Error(err)
		}
	}
	w.t.Fatalf("COUNTEREXAMPLE search=%s depth=%d states=%d\n%s\n\n%s", w.m.name, len(w.path), w.states, w.bad, script)
}

// report is one line of what make explore prints.
func (w *walk) report() string {
	end := ""
	if !w.complete {
		end = " and some longer ones"
	}
	perSecond := float64(w.plays) / max(w.took.Seconds(), 1e-9)
	return fmt.Sprintf("%-18s %2d steps to choose from, all scripts of %d%s: %d states, %d plays; %v, %.0f plays/s",
		w.m.name, len(w.menu), w.depth, end, w.states, w.plays, w.took.Round(10*time.Millisecond), perSecond)
}

// walk searches every sequence of a menu's steps, shortest first. A Lease and a RawNode
// cannot be copied, so each step plays its script from the beginning.
type walk struct {
	t    *testing.T
	m    *menu
	pin  pinned
	head []*datadriven.TestData
	menu []*datadriven.TestData
	seen map[key]struct{}
	walked
}

// walked is what a search has found.
type walked struct {
	states, plays int
	// depth is the length up to which all scripts were played. complete means that no longer
	// ones were wanted.
	depth    int
	complete bool
	took     time.Duration
	goals    uint64
	// bad describes the violation that path leads to.
	bad  string
	path []uint8
}

func newWalk(t *testing.T, m *menu) *walk {
	t.Helper()
	w := &walk{t: t, m: m, pin: pin(t), seen: make(map[key]struct{})}
	w.head, w.menu = parse(t, m.begin), parse(t, m.steps)
	return w
}

// search plays scripts of up to depth steps, at most plays of them.
func (w *walk) search(depth, plays int) {
	begun := time.Now()
	defer func() { w.took = time.Since(begun) }()
	level := [][]uint8{{}}
	if _, fresh := w.try(nil); !fresh || w.bad != "" {
		return
	}
	for w.depth < depth && len(level) > 0 {
		var next [][]uint8
		for _, path := range level {
			for step := range w.menu {
				if w.plays >= plays {
					return
				}
				longer, fresh := w.try(append(slices.Clip(path), uint8(step)))
				if w.bad != "" {
					return
				}
				if fresh {
					next = append(next, longer)
				}
			}
		}
		level = next
		w.depth++
	}
	w.complete = true
}

// try plays path and reports whether it leads to a new state.
func (w *walk) try(path []uint8) (longer []uint8, fresh bool) {
	w.t.Helper()
	w.plays++
	p, bad := w.play(path)
	if bad != "" {
		w.bad, w.path = bad, path
		return path, false
	}
	p.survey()
	w.goals |= p.goals
	k := p.key()
	if _, ok := w.seen[k]; ok {
		return path, false
	}
	w.seen[k] = struct{}{}
	w.states++
	return path, true
}

// play plays path from the beginning. A panic is a violation.
func (w *walk) play(path []uint8) (p *play, bad string) {
	w.t.Helper()
	p = &play{t: w.t, script: script{pin: w.pin.rewind}}
	p.doubtful = w.m.doubtful
	defer func() {
		if r := recover(); r != nil {
			bad = fmt.Sprint("panic: ", r)
		}
		p.stopWork()
	}()
	for _, d := range w.head {
		p.do(d)
	}
	for _, step := range path {
		p.do(w.menu[step])
	}
	return p, p.bad
}

// script returns path as a file for RunScript, with its output and a final status of every
// node.
func (w *walk) script(path []uint8) string {
	w.t.Helper()
	ds := slices.Clone(w.head)
	for _, step := range path {
		ds = append(ds, w.menu[step])
	}
	var b strings.Builder
	p := &play{t: w.t, script: script{pin: w.pin.rewind}}
	for _, d := range append(ds, parse(w.t, []string{"status"})...) {
		fmt.Fprintf(&b, "%s\n----\n%s\n", d.FullCmd(), p.attempt(d))
	}
	return b.String()
}

// attempt plays d and returns what it prints, or how it panics.
func (p *play) attempt(d *datadriven.TestData) (out string) {
	p.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			out = fmt.Sprintf("panic: %v\n", r)
		}
	}()
	return p.run(p.t, d)
}

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

// pinned is the randomness of every play. RunScript pins the same, so that a found script plays
// the same way from a file.
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

// controls are searches without an assumption of the claim. They must find a violation.
var controls = []menu{
	{
		name: "raft's own lease", begin: []string{"new election=4 stock=(1,2,3)", "elect 1", "isolate 1"}, depth: 3,
		steps: []string{"run 100ms", "force-elect 2 votes=(2,3) limit=10ms", "write 2 key=7", "read 1 key=7"},
	},
	{
		name: "a leader's clock stands still", begin: then(settled, "clock 1 stop"), depth: 3,
		steps: []string{"run 300ms", "isolate 1", "force-elect 2 votes=(2,3) limit=10ms"},
	},
	{
		name: "a voter's clock jumps ahead", begin: torn, depth: 2,
		steps: []string{"run 100ms", "clock 2 step=1s", "force-elect 3 votes=(2,3) limit=10ms"},
	},
}

func TestExploreFindsBrokenAssumptions(t *testing.T) {
	for i := range controls {
		t.Run(controls[i].name, func(t *testing.T) {
			w := newWalk(t, &controls[i])
			w.search(w.m.depth, math.MaxInt)
			if w.bad == "" {
				t.Fatalf("nothing found: %s", w.report())
			}
			t.Logf("%s\n%s", w.bad, w.script(w.path))
		})
	}
}

func TestExploreRepeats(t *testing.T) {
	m := &menus[1]
	one := newWalk(t, m)
	one.search(2, math.MaxInt)
	two := newWalk(t, m)
	two.search(2, math.MaxInt)
	if one.states != two.states || one.plays != two.plays || one.goals != two.goals {
		t.Errorf("search %s: %d states of %d plays, and again %d of %d", m.name, one.states, one.plays, two.states, two.plays)
	}
}

package leasetest

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

var exploreDeviations = flag.Int("explore.deviations", 1, "schedules: how often a schedule may leave the usual order")

// schedule is a script that is played in every order with a few deviations from the
// usual one, in which messages arrive after 1 ms, in order and once. Each message and
// each tick of it is a place for one.
type schedule struct {
	name         string
	begin, steps []string
	// more is how many more deviations a short schedule has than others.
	more int
}

var schedules = []schedule{
	{name: "transfer", begin: settled, steps: []string{"transfer 1 to=2", "run 120ms", "write 2 key=7 nowait", "read 3 key=7", "run 120ms"}, more: 1},
	{name: "transfer-async", begin: []string{"new election=4 async", "elect 1"}, steps: []string{"transfer 1 to=2", "run 120ms", "write 2 key=7 nowait", "read 1 key=7", "run 120ms"}},
	{name: "resignation", begin: []string{"new election=4 async", "elect 1"}, steps: []string{"resign 1 to=2", "run 120ms", "write 2 key=7 nowait", "read 1 key=7", "read 3 key=7", "run 120ms"}},
	{name: "fail-over", begin: torn, steps: []string{"run 110ms", "isolate 1", "force-elect 3 votes=(2,3) limit=350ms", "heal", "run 110ms", "read 1 key=7"}},
	{name: "restart", begin: torn, steps: []string{"run 110ms", "crash 2", "restart 2", "force-elect 3 votes=(2,3) limit=350ms", "run 110ms"}},
	{
		name: "change", begin: []string{"new election=4 spares=(4)", "elect 1"},
		steps: []string{"change 1 add=4", "write 1 key=7 nowait", "run 110ms", "change 1 remove=1", "run 110ms", "force-elect 2 votes=(2,3,4) limit=350ms"},
	},
	{name: "disks", begin: []string{"new election=4 async", "disk 2 delay=30ms", "elect 1"}, steps: []string{"transfer 1 to=2", "run 110ms", "transfer 2 to=3", "run 250ms"}},
}

// deviation is an unusual event at a place.
type deviation struct {
	place int
	what  turn
}

type turn uint8

const (
	late  turn = iota // a message takes half a lease
	lost              // it does not arrive
	twice             // it arrives, and again after half a lease
	dies              // the process that ticks ends, and another begins soon
	early             // it ticks once more
	numTurns
)

var turnNames = [numTurns]string{"is late", "is lost", "arrives twice", "dies", "ticks early"}

const halfLease = 150 * time.Millisecond

// deviating is a schedule being played.
type deviating struct {
	*play
	at   []deviation
	next int
	// isTick reports for each place whether it is a tick. told describes the deviations.
	isTick []bool
	told   []string
}

// here is called at each place, and returns the deviation there, if any.
func (d *deviating) here(tick bool, what func() string) (turn, bool) {
	place := len(d.isTick)
	d.isTick = append(d.isTick, tick)
	if d.next == len(d.at) || d.at[d.next].place != place {
		return 0, false
	}
	t := d.at[d.next].what
	d.next++
	d.told = append(d.told, fmt.Sprintf("%v: %s %s", d.c.Now(), what(), turnNames[t]))
	return t, true
}

func (d *deviating) plan(m *raftpb.Message) []time.Duration {
	t, deviates := d.here(false, func() string { return describeMessage(m) })
	switch {
	case !deviates:
		return []time.Duration{time.Millisecond}
	case t == late:
		return []time.Duration{halfLease}
	case t == twice:
		return []time.Duration{time.Millisecond, halfLease}
	default:
		return nil
	}
}

func (d *deviating) tick(n *Node) {
	t, deviates := d.here(true, func() string { return fmt.Sprintf("node %d", n.ID) })
	switch {
	case !deviates:
	case t == early:
		d.c.After(0, n.Tick)
	case t == dies:
		d.c.After(0, func() { n.Crash(0) })
		d.c.After(5*time.Millisecond, n.Restart)
	}
}

// deviate plays the head as usual, and then the steps with the deviations.
func (w *walk) deviate(at []deviation) (d *deviating, bad string) {
	w.t.Helper()
	d = &deviating{play: &play{t: w.t, script: script{pin: w.pin.rewind}}, at: at}
	defer func() {
		if r := recover(); r != nil {
			bad = fmt.Sprint("panic: ", r)
		}
	}()
	for _, step := range w.head {
		d.do(step)
	}
	tick := d.c.OnTick
	d.c.OnTick = func(n *Node) {
		if tick != nil {
			tick(n)
		}
		d.tick(n)
	}
	d.c.Net.Plan = d.plan
	for _, step := range w.menu {
		d.do(step)
	}
	return d, d.bad
}

// deviations plays every schedule with up to left more deviations behind those in at.
func (w *walk) deviations(at []deviation, left int) bool {
	w.t.Helper()
	w.plays++
	d, bad := w.deviate(at)
	if bad != "" {
		w.bad = bad + "\n" + strings.Join(d.told, "\n")
		return false
	}
	if left == 0 {
		return true
	}
	from := 0
	if len(at) > 0 {
		from = at[len(at)-1].place + 1
	}
	for place := from; place < len(d.isTick); place++ {
		turns := []turn{late, lost, twice}
		if d.isTick[place] {
			turns = []turn{dies, early}
		}
		for _, t := range turns {
			if !w.deviations(append(slices.Clip(at), deviation{place, t}), left-1) {
				return false
			}
		}
	}
	return true
}

func newSchedule(t *testing.T, s *schedule) *walk {
	t.Helper()
	return newWalk(t, &menu{name: s.name, begin: s.begin, steps: s.steps})
}

// TestExploreSchedules plays every schedule of the real raft with a few deviations.
func TestExploreSchedules(t *testing.T) {
	total := 0
	for i := range schedules {
		s := &schedules[i]
		w := newSchedule(t, s)
		began, depth := time.Now(), *exploreDeviations+s.more
		if shortened() {
			depth = s.more
		}
		w.deviations(nil, depth)
		t.Logf("%-15s %d deviations: %d schedules, %v", s.name, depth, w.plays, time.Since(began).Round(time.Millisecond))
		if total += w.plays; w.bad != "" {
			t.Fatalf("COUNTEREXAMPLE search=%s depth=%d states=%d\n%s\n%s", s.name, depth, w.plays, strings.Join(w.lines(), "\n"), w.bad)
		}
	}
	t.Logf("%d schedules", total)
}

func (w *walk) lines() (all []string) {
	for _, d := range slices.Concat(w.head, w.menu) {
		all = append(all, d.FullCmd())
	}
	return all
}

// A restarted voter breaks raft's own lease. The usual order does not show it; one deviation
// does.
func TestExploreSchedulesFindsRaftsOwnLease(t *testing.T) {
	w := newSchedule(t, &schedule{
		begin: []string{"new election=4 stock=(1,2,3)", "elect 1", "run 10ms", "split a=(1) b=(3)"},
		steps: []string{"run 96ms", "campaign 3", "write 3 key=7 nowait", "run 10ms", "read 1 key=7"},
	})
	if !w.deviations(nil, 0) {
		t.Fatalf("found without a deviation: %s", w.bad)
	}
	if w.deviations(nil, 1) {
		t.Fatalf("nothing found in %d schedules", w.plays)
	}
	t.Log(w.bad)
}

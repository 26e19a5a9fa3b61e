package kvnode

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

var (
	turnoversFlag     = flag.Int("turnovers", 0, "how many schedules TestLeadersComeAndGo plays; 0 for 4, or 1 with -short")
	firstTurnoverFlag = flag.Uint64("firstturnover", 1, "the first seed of TestLeadersComeAndGo")
)

// TestLeadersComeAndGo replaces the leader every few hundred milliseconds, in each way that there is,
// while clients of all members write: what is under way then is in any log, queue or line, and what
// a follower has missed it is sent in a snapshot. Each write has a value of its own, so one
// that was done twice shows, as does one that was answered and is not there (history.judge).
func TestLeadersComeAndGo(t *testing.T) {
	all := make(tally)
	turnovers := *turnoversFlag
	if turnovers == 0 {
		turnovers = often(4, 1)
	}
	for seed := *firstTurnoverFlag; seed < *firstTurnoverFlag+uint64(turnovers); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playTurnover(t, seed, all) })
	}
	t.Logf("%v", all)
	// A schedule in which nothing is void, or no snapshot comes, shows nothing.
	if !t.Failed() && turnovers >= 4 && (all["void"] == 0 || all["restored"] == 0) {
		t.Errorf("%d attempts were void, and %d snapshots were restored; want some of both", all["void"], all["restored"])
	}
}

func playTurnover(t *testing.T, seed uint64, all tally) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	r := &seedRun{seed: seed, random: rand.New(rand.NewPCG(seed, 27)), running: make([]atomic.Pointer[Node], 3+seed%2*2)}
	amend := func(cfg *Config) {
		time.Sleep(time.Duration(r.random.IntN(20_000)) * time.Microsecond) // see playSeed
		d := &seedDisk{usual: time.Duration(100+r.random.IntN(400)) * time.Microsecond}
		r.disks, r.members = append(r.disks, d), append(r.members, cfg.Name)
		cfg.walFS = d.hook(fs.NewMemory())
		cfg.CatchUpEntries = 1
	}
	inCluster(t, len(r.running), amend, func(t *testing.T, c *cluster) {
		r.cluster, r.began = c, time.Now()
		r.t = t
		r.turnOver(all)
		all.count(r.log.String(), r.history.ops)
		if t.Failed() {
			r.history.print(&r.log)
			t.Logf("seed %d\n%s", seed, r.log.String())
		}
	})
}

func (r *seedRun) turnOver(all tally) {
	for i, m := range r.members {
		r.running[i].Store(r.nodes[m])
	}
	r.restoreLines()
	r.leader()
	stop := r.load(16)
	defer stop()
	for range often(40, 15) {
		time.Sleep(time.Duration(5_000+r.random.IntN(400_000)) * time.Microsecond)
		r.turnoverStep(all)
		r.nobodyEnded()
	}
	r.heal()
	time.Sleep(time.Second)
	stop()
	if r.t.Failed() {
		return
	}
	r.converge()
	for _, n := range r.nodes {
		r.countWhatShows(n, all)
		r.nothingIsHeld(n)
	}
	r.history.judge(r.t, r.nodes[r.members[0]].Store())
}

// turnoverStep mostly transfers leadership, and sometimes ends a partition.
func (r *seedRun) turnoverStep(all tally) {
	i := r.random.IntN(len(r.members))
	j := (i + 1 + r.random.IntN(len(r.members)-1)) % len(r.members)
	a, b := r.members[i], r.members[j]
	long := time.Duration(1_000+r.random.IntN(60_000)) * time.Microsecond
	switch kind := r.random.IntN(20); kind {
	case 0, 1, 2, 3, 4, 5:
		r.transfer(i, j)
	case 6:
		if l := r.anyLeader(); l != nil {
			r.say("isolate the leader")
			r.net.Isolate(l.Name())
		}
	case 7:
		r.say("cut %s to %s", a, b)
		r.net.CutOneWay(a, b)
	case 8, 9:
		r.say("reset %s %s", a, b)
		r.net.Reset(a, b)
	case 10, 11:
		r.say("delay %s %s %v", a, b, long)
		r.net.Delay(a, b, long)
	case 12, 13:
		for _, m := range r.members {
			if n := r.nodes[m]; n != nil {
				r.say("checkpoint %s", m)
				_ = n.Checkpoint(r.t.Context())
			}
		}
	case 14:
		if n := r.nodes[a]; n != nil {
			r.countWhatShows(n, all)
		}
		if r.random.IntN(2) == 0 {
			r.die("kill", (*fs.Memory).EndProcess, i)
		} else {
			r.die("power", r.powerFails(), i)
		}
	default:
		r.say("heal")
		r.HealAll()
		for k := range r.members {
			r.restart(k)
		}
	}
}

// nothingIsHeld fails where n keeps something of a proposal once all have been answered.
func (r *seedRun) nothingIsHeld(n *Node) {
	s, queued := n.proposals.Stats(), n.queued()
	if s.Waiting != 0 || s.WaitingBytes != 0 || queued != 0 {
		r.t.Errorf("%s has %d waiters of %d bytes and %d queued proposals, want none", n.Name(), s.Waiting, s.WaitingBytes, queued)
	}
}

func (r *seedRun) countWhatShows(n *Node, all tally) {
	all["void"] += int(n.Status().Counts.VoidedProposals)
	n.call(func() {
		if n.loop.restored > 0 {
			all["restored"]++
		}
	})
}

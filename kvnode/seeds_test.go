package kvnode

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

var (
	seedsFlag = flag.Int("seeds", 0, "how many schedules TestSeeds plays; 0 for 16, or 4 with -short")
	firstFlag = flag.Uint64("first", 1, "the first seed of TestSeeds")
	againFlag = flag.Bool("again", false, "play each seed twice, and say how many histories are the same")
)

// seedRun is one schedule of faults for three whole members, with clients, all in one
// bubble of virtual time.
type seedRun struct {
	*cluster
	seed    uint64
	random  *rand.Rand
	began   time.Time
	members []string
	running []atomic.Pointer[Node] // by member; the clients' view
	disks   []*seedDisk
	asked   sync.WaitGroup // transfers of leadership
	history history
	log     bytes.Buffer // what the schedule did
}

// TestSeeds plays one schedule for each seed: lines cut, one way or both, and slow,
// processes that die, power that fails, disks that are slow or full, and leaders that
// are asked to hand over, while clients read and write. What the clients saw must be
// linearizable, and when all faults are over the members serve and have the same state.
func TestSeeds(t *testing.T) {
	same, all := 0, make(tally)
	seeds := *seedsFlag
	if seeds == 0 {
		seeds = often(16, 4)
	}
	for seed := *firstFlag; seed < *firstFlag+uint64(seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			once := playSeed(t, seed, all)
			if !*againFlag || t.Failed() {
				return
			}
			if again := playSeed(t, seed, all); again == once {
				same++
			} else {
				t.Log(firstDifference(once, again))
			}
		})
	}
	t.Logf("%v", all)
	if *againFlag {
		t.Logf("%d of %d seeds gave the same history twice", same, seeds)
	}
}

func firstDifference(a, b string) string {
	other := strings.Split(b, "\n")
	for i, line := range strings.Split(a, "\n") {
		if i >= len(other) || line != other[i] {
			return fmt.Sprintf("the histories differ first at\n%s\n%s", line, other[min(i, len(other)-1)])
		}
	}
	return "the second history is longer"
}

// playSeed returns all that clients and schedule saw, with the moments.
func playSeed(t *testing.T, seed uint64, all tally) (seen string) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed) // raft's election timeouts, and IDs
	r := &seedRun{seed: seed, random: rand.New(rand.NewPCG(seed, 0)), running: make([]atomic.Pointer[Node], 3)}
	amend := func(cfg *Config) {
		// Members that do not begin at one moment, and disks and lines that differ, do
		// not race for one moment later.
		time.Sleep(time.Duration(r.random.IntN(20_000)) * time.Microsecond)
		d := &seedDisk{usual: time.Duration(100+r.random.IntN(400)) * time.Microsecond}
		r.disks = append(r.disks, d)
		r.members = append(r.members, cfg.Name)
		cfg.walFS = d.hook(fs.NewMemory())
	}
	inCluster(t, 3, amend, func(t *testing.T, c *cluster) {
		r.cluster, r.began = c, time.Now()
		r.t = t
		r.play()
		all.count(r.log.String(), r.history.ops)
		r.history.print(&r.log)
		seen = r.log.String()
		if t.Failed() {
			t.Logf("seed %d\n%s", seed, seen)
		}
	})
	return seen
}

// load lets so many clients work until stop is called.
func (r *seedRun) load(clients int) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var all sync.WaitGroup
	for i := range clients {
		c := &seedClient{run: r, name: i, random: rand.New(rand.NewPCG(r.seed, uint64(i)+1))}
		all.Go(func() { c.work(ctx) })
	}
	return sync.OnceFunc(func() {
		cancel()
		all.Wait()
		r.asked.Wait()
	})
}

func (r *seedRun) play() {
	for i, m := range r.members {
		r.running[i].Store(r.nodes[m])
	}
	r.restoreLines()
	stop := r.load(seedClients)
	defer stop()
	for range seedSteps {
		time.Sleep(time.Duration(50_000+r.random.IntN(900_000)) * time.Microsecond)
		r.step()
		r.nobodyEnded()
	}
	r.heal()
	time.Sleep(time.Second)
	stop()
	if r.t.Failed() {
		return // who has not started has no state to compare
	}
	r.converge()
	r.history.judge(r.t, r.nodes[r.members[0]].Store())
}

// nobodyEnded fails where a member has ended by itself. No fault of these may end one.
func (r *seedRun) nobodyEnded() {
	for _, n := range r.nodes {
		if err := n.Err(); err != nil {
			r.t.Errorf("%s ended by itself: %v", n.Name(), err)
		}
	}
}

// heal ends all faults, and starts the members that do not run.
func (r *seedRun) heal() {
	r.say("heal")
	r.HealAll()
	for i := range r.members {
		r.disks[i].mend()
		r.restart(i)
	}
}

func (r *seedRun) HealAll() {
	r.net.HealAll()
	r.restoreLines()
}

// seedPatience is within what virtual time members must serve when all faults are over:
// some election timeouts, restart holds and pauses of dialling.
const seedPatience = 30 * time.Second

// converge waits until each member serves and all have the same state.
func (r *seedRun) converge() {
	ctx, cancel := context.WithTimeout(r.t.Context(), seedPatience)
	defer cancel()
	for i, m := range r.members {
		n := r.nodes[m]
		if err := r.settled(ctx, n, i); err != nil {
			r.t.Errorf("%s does not serve %v after all faults: %v", m, seedPatience, err)
			return
		}
	}
	leader := r.leader()
	rev := leader.Store().Revision()
	want, err := leader.Store().HashKV(rev)
	for _, n := range r.followers(leader) {
		if _, readErr := n.Read(ctx, ReadIndex); readErr != nil {
			r.t.Errorf("a read of %s after all faults: %v", n.Name(), readErr)
		}
		got, gotErr := n.Store().HashKV(rev)
		if err := errors.Join(err, gotErr); err != nil || got.Hash != want.Hash {
			r.t.Errorf("at revision %d %s has hash %x, %v, and the leader %x", rev, n.Name(), got.Hash, err, want.Hash)
		}
	}
}

// settled returns once n has taken a write.
func (r *seedRun) settled(ctx context.Context, n *Node, i int) error {
	for {
		err := put(ctx, n, "settled", fmt.Sprint(i))
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

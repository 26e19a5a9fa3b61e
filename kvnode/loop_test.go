package kvnode

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/raftwal/fs"
)

// ticksIn counts the ticks of n while time passes.
func ticksIn(n *Node, long time.Duration) uint64 {
	before := n.Status().Late.Count
	time.Sleep(long)
	return n.Status().Late.Count - before
}

// The timer is set for the due time of the tick. A heartbeat that comes too early delays the tick, and
// those after it.
func TestEarlyHeartbeatDelaysTheTick(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		var due time.Time
		n.call(func() { due = n.loop.cadence.due })
		interval := n.cfg.TickInterval
		time.Sleep(time.Until(due) - interval/2)
		n.call(func() { n.loop.cadence.beat(time.Now()) })
		if got := ticksIn(n, interval/2+interval/5-1); got != 0 {
			t.Errorf("%d ticks before it has waited for a heartbeat", got)
		}
		if got := ticksIn(n, 2); got != 1 {
			t.Errorf("%d ticks when it has waited, want one", got)
		}
		if got := ticksIn(n, interval-2); got != 0 {
			t.Errorf("%d ticks less than an interval later", got)
		}
		if got := ticksIn(n, 2); got != 1 {
			t.Errorf("%d ticks an interval later, want one", got)
		}
	})
}

// A loop that is late at a tick by less than an interval is on time at the next, so it ticks as often.
func TestLateLoopTicksAsOften(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		var due time.Time
		n.call(func() { due = n.loop.cadence.due })
		const rounds = 20
		interval := n.cfg.TickInterval
		time.Sleep(time.Until(due) - interval/10)
		before := n.Status().Late
		for i := range rounds {
			if i%2 == 0 {
				n.stall(interval / 2)
				time.Sleep(interval / 2)
				continue
			}
			time.Sleep(interval)
		}
		got := n.Status().Late
		if ticks, late, want := got.Count-before.Count, got.Sum-before.Sum, rounds/2*interval*2/5; ticks != rounds || late != want {
			t.Errorf("%d ticks in %d intervals, %v late in all, want %v", ticks, rounds, late, want)
		}
	})
}

// Heartbeats of a former leader do not delay the ticks of a leader.
func TestLeaderTicksByItsClock(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		former := c.followers(leader)[0]
		interval := leader.cfg.TickInterval
		var due time.Time
		leader.call(func() { due = leader.loop.cadence.due })
		time.Sleep(time.Until(due) + 1)
		const rounds = 20
		before := leader.Status().Late.Count
		for range rounds {
			time.Sleep(interval / 2)
			leader.call(func() {
				leader.loop.step(&raftpb.Message{
					Type: raftpb.MsgHeartbeat.Enum(), From: new(former.ID()), To: new(leader.ID()), Term: new(leader.Term() - 1),
				})
			})
			time.Sleep(interval / 2)
		}
		if got := leader.Status().Late.Count - before; got != rounds {
			t.Errorf("%d ticks in %d intervals", got, rounds)
		}
	})
}

// In an idle cluster followers tick with the heartbeats, as often as by their clocks. The leader, which
// gets none, ticks by its clock.
func TestFollowersTickWithHeartbeats(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for _, n := range c.nodes {
			time.Sleep(time.Second)
			before := n.Status().Late.Count
			const odd = 13 * time.Millisecond
			for range 100 {
				time.Sleep(odd)
				synctest.Wait() // a heartbeat that has just come is handled
				var got cadence
				n.call(func() { got = n.loop.cadence })
				if got.heartbeatSinceTick != (n != leader) || got.tickNow {
					t.Fatalf("%+v, leads: %v", got, n == leader)
				}
			}
			ticks := n.Status().Late.Count - before
			if want := uint64(100 * odd / n.cfg.TickInterval); ticks > want+1 || ticks < want-1 {
				t.Errorf("%d ticks in %v, want %d", ticks, 100*odd, want)
			}
		}
	})
}

// Tick intervals are as long as a configuration allows, or short, or differ between members, as during a
// restart with other intervals. No lease is lost, there is no election, and ticks are at most a sixth fewer
// than by the clock, and never more.
func TestTicksAtTheLimits(t *testing.T) {
	const ms = time.Millisecond
	for i, ticks := range [][]time.Duration{
		{time.Second / minElectionTicks, time.Second / minElectionTicks, time.Second / minElectionTicks},
		{ms, ms, ms},
		{50 * ms, 100 * ms, 20 * ms},
		{50 * ms, 50 * ms, 50 * ms},
		{100 * ms, 50 * ms, 60 * ms},
		{20 * ms, 50 * ms, 100 * ms},
	} {
		if i == often(6, 3) {
			break
		}
		t.Run(fmt.Sprint(ticks), func(t *testing.T) {
			inCluster(t, 3, func(cfg *Config) {
				cfg.LeaseDuration = 0
				cfg.TickInterval = ticks[cfg.Name[1]-'1']
			}, func(t *testing.T, c *cluster) {
				leader := c.leader()
				term := leader.Term()
				time.Sleep(time.Second)
				before := make(map[*Node]uint64)
				for _, n := range c.nodes {
					before[n] = n.Status().Late.Count
				}
				const odd = 13 * ms
				times := often(400, 150)
				for range times {
					time.Sleep(odd)
					if s := c.leaseStatus(leader); s != leaderlease.StatusValid {
						t.Fatalf("the lease is %v", s)
					}
				}
				for n, was := range before {
					got, want := n.Status().Late.Count-was, uint64(time.Duration(times)*odd/n.cfg.TickInterval)
					if got > want+1 || got < want*5/6-1 {
						t.Errorf("%s ticks %d times in %v, want %d", n.Name(), got, time.Duration(times)*odd, want)
					}
				}
				if got := leader.Term(); got != term {
					t.Errorf("term %d, want %d", got, term)
				}
			})
		})
	}
}

// A blocked loop reports how late it was at its tick, once for all missed ticks.
func TestLateness(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		if got := n.Status().Late; got.Count == 0 || got.Max != 0 || got.Within[0] != got.Count {
			t.Errorf("Late of an idle member = %+v, want ticks, and none late", got)
		}
		before := n.Status().Late
		const held = 25 * time.Second / 10
		n.call(func() { time.Sleep(held) })
		time.Sleep(n.cfg.TickInterval / 2)
		got := n.Status().Late
		if got.Max < held-n.cfg.TickInterval || got.Max > held || got.Sum != got.Max || got.Count != before.Count+1 {
			t.Errorf("Late = %+v after %v without a tick, want one late tick", got, held)
		}
		last := len(lateBounds) - 1
		if got.Within[last] != got.Count || got.Within[last-1] != got.Count-1 {
			t.Errorf("Late.Within = %v, want one tick between %v and %v", got.Within, lateBounds[last-1], lateBounds[last])
		}
	})
}

// stalls checks Stalls, with a tolerance of 200 ms.
func (c *cluster) stalls(n *Node, what string, loop, applier time.Duration) {
	c.t.Helper()
	const tick = 200 * time.Millisecond
	gotLoop, gotApplier := n.Stalls()
	if gotLoop < loop-tick || gotLoop > loop+tick || gotApplier < applier-tick || gotApplier > applier+tick {
		c.t.Errorf("Stalls() of %s = %v, %v, want about %v, %v", what, gotLoop, gotApplier, loop, applier)
	}
}

func TestStallsOfABlockedLoop(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		time.Sleep(time.Minute)
		c.stalls(n, "a member that rests", 0, 0)

		goOn := make(chan struct{})
		n.calls.Push(func(*raftLoop) { <-goOn })
		time.Sleep(20 * time.Second)
		c.stalls(n, "a member with a loop that hangs", 20*time.Second, 0)
		close(goOn)
		time.Sleep(time.Second)
		c.stalls(n, "a member with a loop that goes on", 0, 0)
	})
}

// A disk that hangs blocks the appender. It blocks the applier only if that applies a configuration change.
func TestStallsOnADiskThatHangs(t *testing.T) {
	var d disks
	inCluster(t, 1, d.use, func(t *testing.T, c *cluster) {
		n := c.leader()
		hang := func(hangs func() bool) (answers chan struct{}) {
			answers = make(chan struct{})
			d.of(n).SetHook(func(op fs.Op) *fs.Fault {
				if op.Kind == fs.OpSync && hangs() {
					<-answers
				}
				return nil
			})
			return answers
		}
		answers, written := hang(func() bool { return true }), make(chan error, 1)
		go func() { written <- put(t.Context(), n, "k", "w") }()
		time.Sleep(3 * time.Second)
		c.stalls(n, "a member with a disk that hangs", 0, 0)
		close(answers)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		answers, changed := hang(func() bool { return n.applier.progress.since.Load() != 0 }), make(chan struct{})
		go func() {
			defer close(changed)
			_, _ = n.AddMember(t.Context(), []string{"http://x:1"}, true) // fails with a timeout
		}()
		time.Sleep(15 * time.Second)
		c.stalls(n, "a member that cannot write what it must before it applies", 0, 15*time.Second)
		close(answers)
		<-changed
	})
}

// On a full disk the applier waits with a configuration change for free space. A restart would not help, so
// this is no stall.
func TestFullDiskIsNoStall(t *testing.T) {
	var d disks
	inCluster(t, 1, d.use, func(t *testing.T, c *cluster) {
		n := c.leader()
		d.fillAfter(n, 1) // the entry
		go func() { _, _ = n.AddMember(t.Context(), []string{"http://x:1"}, true) }()
		time.Sleep(30 * time.Second)
		if !n.Status().DiskFull || n.applier.progress.since.Load() == 0 {
			t.Fatalf("DiskFull = %v, and the applier waits: %v, want both", n.Status().DiskFull, n.applier.progress.since.Load() != 0)
		}
		c.stalls(n, "a member with a full disk", 0, 0)
		d.free(n)
	})
}

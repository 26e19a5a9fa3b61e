package leasetest

import (
	"math"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

func (s *script) pass(a *args) { s.c.Run(a.parseDuration(a.text(0))) }

func (s *script) tick(a *args) {
	n := 1
	if a.has(0) {
		v, err := strconv.Atoi(a.text(0))
		if err != nil {
			a.fail("tick: %v", err)
		}
		n = v
	}
	s.c.Run(time.Duration(n) * s.c.opts.TickInterval)
}

// heartbeat lets time pass until the node has sent its next heartbeats and the
// answers are back.
func (s *script) heartbeat(a *args) {
	n := a.node(s, 0)
	sent := false
	s.c.Net.OnSend = func(m *raftpb.Message) {
		sent = sent || m.GetType() == raftpb.MsgHeartbeat && m.GetFrom() == n.ID
	}
	defer func() { s.c.Net.OnSend = nil }()
	if !s.c.RunUntil(10*s.c.opts.TickInterval, func() bool { return sent }) {
		s.event("node %d sent no heartbeat", n.ID)
		return
	}
	s.c.Run(3 * time.Millisecond)
}

func (s *script) elect(a *args) {
	n := a.node(s, 0)
	if !s.c.Elect(n.ID) {
		s.event("node %d was not elected", n.ID)
	}
}

func (s *script) campaign(a *args) {
	a.node(s, 0).Campaign()
	s.c.Run(10 * time.Millisecond)
}

func (s *script) forget(a *args) { a.node(s, 0).ForgetLeader() }

// usurp does what it can to get a node elected: those whose votes it wants
// forget their leader, and it campaigns every 10 ms.
func (s *script) usurp(a *args) {
	n, votes, limit := a.node(s, 0), a.ids("votes"), a.duration("limit", 5*time.Second)
	for end := s.c.Now() + limit; s.c.Now() < end; {
		for _, id := range votes {
			if v := s.c.Node(id); v.role == raft.StateFollower {
				v.ForgetLeader()
			}
		}
		n.Campaign()
		s.c.Run(10 * time.Millisecond)
		if n.role == raft.StateLeader {
			return
		}
	}
	s.event("node %d was not elected", n.ID)
}

func (s *script) transfer(a *args) { a.node(s, 0).Transfer(a.id("to")) }

// resign prints "ok" where nobody leads that could.
func (s *script) resign(a *args) {
	if n := a.node(s, 0); n.Resign(a.id("to")) {
		s.event("node %d resigns", n.ID)
	}
}

// obituary tells a node of the newest process of another that has died.
func (s *script) obituary(a *args) {
	n, dead := a.node(s, 0), s.c.Node(a.id("of"))
	last := dead.Process()
	if dead.up {
		last--
	}
	if last == 0 {
		s.event("no process of node %d has died", dead.ID)
		return
	}
	n.ProcessDied(dead.ID, dead.process(last))
	if v := n.lease; v != nil && n.up {
		s.event("promises void by obituaries: %d of %d", v.Stats().VoidedPromises, v.Stats().Deaths)
	}
}

func (s *script) clock(a *args) {
	c := a.node(s, 0).Clock
	if rate, ok := a.float("rate"); ok {
		c.SetRate(rate)
	}
	step := a.duration("step", 0)
	if a.flag("within") {
		c.within = func() {
			c.Step(step)
			c.Disrupt()
		}
		return
	}
	c.Step(step)
	switch {
	case a.flag("stop"):
		c.Stop()
	case a.flag("start"):
		c.Start()
	case a.flag("fail"):
		c.SetFailed(true)
	case a.flag("recover"):
		c.SetFailed(false)
	case a.flag("disrupt"):
		c.Disrupt()
	}
}

func (s *script) pause(a *args)   { a.node(s, 0).Pause() }
func (s *script) resume(a *args)  { a.node(s, 0).Resume(a.flag("ticks-first")) }
func (s *script) suspend(a *args) { a.node(s, 0).Suspend(a.flag("stop-clock")) }
func (s *script) wake(a *args)    { a.node(s, 0).Wake(a.flag("ticks-first")) }
func (s *script) restart(a *args) { a.node(s, 0).Restart() }

func (s *script) diskDelay(a *args)  { s.disk[a.node(s, 0).ID] = a.duration("delay", 0) }
func (s *script) applyDelay(a *args) { s.apply[a.node(s, 0).ID] = a.duration("delay", 0) }

// crash ends a process, and the power of its machine, too, if the script says so.
func (s *script) crash(a *args) {
	n, survive := a.node(s, 0), a.number("survive")
	if a.flag("torn") {
		n.CrashTorn(survive, math.MaxInt)
	}
	n.Crash(survive)
	if d, ok := n.disk.(*memoryDisk); a.flag("power") && ok {
		d.maxPromise = d.saved
	}
}

package leasetest

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// lag keeps a process from asking raft for a Ready, while raft still steps messages.
func (s *script) lag(a *args) {
	n, by := a.node(s, 0), a.duration("by", 0)
	if !n.up || n.busy {
		return
	}
	n.busy, n.lags = true, true
	n.later(by, func() {
		n.busy, n.lags = false, false
		n.drain()
		n.pump()
	})
}

// adopt copies another node's snapshot to a node that is down and has never run, as an
// operator may do.
func (s *script) adopt(a *args) {
	n, from := a.node(s, 0), s.c.Node(a.id("from"))
	snap, err := storage{from.disk, from}.Snapshot()
	must(err)
	must(n.disk.Save(nil, nil, snap))
}

// saving makes the last process of a node that is down have died while it saved a promise,
// which is in memory but not on the disk.
func (s *script) saving(a *args) {
	if d, ok := a.node(s, 0).disk.(*memoryDisk); ok {
		d.maxPromise = a.duration("promise", 0)
	}
}

// overlap is a read that is slow to read the clock. Meanwhile another leader hands over to
// the reading node.
func (s *script) overlap(a *args) {
	n, key, from, by := a.node(s, 0), a.id("key"), s.c.Node(a.id("from")), a.duration("by", 0)
	floor := s.written[key]
	report := func(index uint64, path leaderlease.Path) {
		// A version is the index of its write.
		s.event("node %d: overlap %d: index %d by %v%s", n.ID, key, index, path, stale(index, floor))
	}
	n.Clock.before = func() {
		from.Transfer(n.ID)
		s.c.Run(by)
	}
	defer func() { n.Clock.before = nil }()
	if a.flag("waits") {
		s.reads++
		n.lease.StartRead(context.Background(), leaderlease.ReadModeLease, func(r leaderlease.ReadResult, err error) {
			if err == nil {
				report(r.Index, r.Path)
			}
		})
		return
	}
	if index, st := n.lease.TryRead(); st == leaderlease.StatusValid {
		report(index, leaderlease.PathLease)
	}
}

// old makes a node behave like an older version, which answers every read from its lease,
// even if the request asks for a round.
func (s *script) old(a *args) { a.node(s, 0).asked = make(map[string]bool) }

// roundMark is the bit of a read request that asks for a round.
const roundMark = 1 << 7

// unmark removes roundMark from a request to an old node. mark restores it in the answer,
// which repeats the request.
func (n *Node) unmark(m *raftpb.Message) {
	if n.asked == nil || m.GetType() != raftpb.MsgReadIndex {
		return
	}
	for _, e := range m.GetEntries() {
		if id := e.GetData(); len(id) == 16 && id[8]&roundMark != 0 {
			id[8] &^= roundMark
			n.asked[string(id)] = true
		}
	}
}

func (n *Node) mark(m *raftpb.Message) {
	if m.GetType() != raftpb.MsgReadIndexResp {
		return
	}
	for _, e := range m.GetEntries() {
		if id := e.GetData(); n.asked[string(id)] {
			id[8] |= roundMark
		}
	}
}

// mistakes by name.
var mistakes = map[string]Mistake{
	"none": NoMistake, "never": NeverReady, "copies": SendsCopy, "clones": SendsClones, "late": ReadyTooLate, "forgets": TellsNoConf,
	"twice": TellsConfTwice, "repeats": RepeatsConf, "old": TellsOldConf, "ahead": TellsConfAhead, "again": TellsConfAgain, "claims": ClaimsConf,
}

// mistake makes a node embed its Lease wrongly from now on.
func (s *script) mistake(a *args) {
	m, ok := mistakes[a.text(1)]
	if !ok {
		a.fail("mistake: no mistake %s", a.text(1))
	}
	a.node(s, 0).Options.Mistake = func(int) Mistake { return m }
}

// overtake makes a node filter messages on arrival, and delays matching messages between
// the filter and raft, so that other messages overtake them.
func (s *script) overtake(a *args) {
	n, m, by := a.node(s, 0), a.matcher(), a.duration("by", 0)
	n.Options.FilterOnArrival = true
	n.Options.StepDelay = func(msg *raftpb.Message) time.Duration {
		if m.match(msg) {
			return by
		}
		return 0
	}
}

// configure changes the durations for the next process of a node.
func (s *script) configure(a *args) {
	n, conf, before := a.node(s, 0), a.leaseConfig(), s.c.opts.Configure
	s.c.opts.Configure = func(id uint64, cfg *leaderlease.Config) {
		if id == n.ID {
			conf(id, cfg)
			return
		}
		before(id, cfg)
	}
}

// maxApplying is raft's default limit of bytes that are being applied: its MaxSizePerMsg.
// Beyond it, raft hands out no entries.
const maxApplying = 1 << 16

// fill proposes an entry of the size maxApplying: raft hands out no entries behind it until
// it is applied.
func (s *script) fill(a *args) {
	n := a.node(s, 0)
	n.exec(func() { _ = n.raw.Propose(make([]byte, maxApplying)) })
	s.c.Run(5 * time.Millisecond)
}

// burst gives a process ticks besides those of its clock.
func (s *script) burst(a *args) {
	n := a.node(s, 0)
	for range a.number("ticks") {
		n.Tick()
	}
}

func (s *script) holds(m *raftpb.Message) bool {
	for _, h := range s.held {
		if h.match(m) {
			return true
		}
	}
	return false
}

func (s *script) plan(m *raftpb.Message) []time.Duration {
	if d, ok := s.delays[m.GetType()]; ok {
		return d
	}
	return []time.Duration{time.Millisecond}
}

func (s *script) hold(a *args) { s.held = append(s.held, a.matcher()) }

// unhold holds back no further messages.
func (s *script) unhold(*args) { s.held = nil }

func (s *script) release(a *args) {
	s.printf("released %d", s.c.Net.Release(a.matcher().match))
	s.c.Run(2 * time.Millisecond)
}

func (s *script) drop(a *args) {
	before := len(s.c.Net.Held())
	s.c.Net.DropHeld(a.matcher().match)
	s.printf("dropped %d", before-len(s.c.Net.Held()))
}

func (s *script) messages(a *args) {
	m := a.matcher()
	for _, msg := range s.c.Net.Held() {
		if m.match(msg) {
			s.printf("%s", describeMessage(msg))
		}
	}
}

func describeMessage(m *raftpb.Message) string {
	d := fmt.Sprintf("%v %d→%d term=%d", m.GetType(), m.GetFrom(), m.GetTo(), m.GetTerm())
	if m.GetReject() {
		d += " reject"
	}
	if len(m.GetContext()) > 0 && m.GetType() == raftpb.MsgVote {
		d += " forced"
	}
	if f, ok := FieldOf(m); ok {
		d += " [" + f.String() + "]"
	}
	return d
}

// delay gives a type of message its own deliveries, one for each duration;
// without any, its messages travel as usual again.
func (s *script) delay(a *args) {
	var by []time.Duration
	for _, v := range a.values("by") {
		by = append(by, a.parseDuration(v))
	}
	for _, t := range a.matcher().types {
		delete(s.delays, t)
		if len(by) > 0 {
			s.delays[t] = by
		}
	}
}

func (s *script) cut(a *args) {
	for _, from := range a.ids("from") {
		for _, to := range a.ids("to") {
			s.c.Net.Cut(from, to)
		}
	}
}

func (s *script) join(a *args) { s.c.Net.Join(a.node(s, 0).ID, a.node(s, 1).ID) }

func (s *script) split(a *args) { s.c.Net.Split(a.ids("a"), a.ids("b")) }

func (s *script) isolate(a *args) {
	id := a.node(s, 0).ID
	for _, n := range s.c.Nodes() {
		if n.ID != id {
			s.c.Net.Split([]uint64{id}, []uint64{n.ID})
		}
	}
}

func (s *script) heal(*args) { s.c.Net.Heal() }

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

// forceElect elects a node against raft's own timeouts: the nodes in votes forget their leader, and the node
// campaigns, every 10 ms.
func (s *script) forceElect(a *args) {
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

// resign prints "ok" if the node does not lead.
func (s *script) resign(a *args) {
	if n := a.node(s, 0); n.Resign(a.id("to")) {
		s.event("node %d resigns", n.ID)
	}
}

// processDied sends a node the death notice of the newest dead process of another node.
func (s *script) processDied(a *args) {
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
		s.event("promises void by death notices: %d of %d", v.Stats().VoidedPromises, v.Stats().Deaths)
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

// crash kills a process; with power, its machine loses power as well.
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

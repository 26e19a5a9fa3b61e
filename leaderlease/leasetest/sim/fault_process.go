package sim

import (
	"maps"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

var processFaults = []faultKind{
	{"pause", 4, 0.05, 4, func(f *fault) { f.pauseFor(f.leaderOr(), f.For) }},
	{"suspend", 2, 0.5, 4, suspendFault},
	{"crash", 4, 0, 3, func(f *fault) { f.crashFor(f.leaderOr(), f.For) }},
	{"crash_many", 2, 0, 3, crashMany},
	{"bounce", 3, 0, 0.02, func(f *fault) { f.crashFor(f.leaderOr(), f.For) }},
	{"disk_stall", 2, 0.1, 3, diskStall},
	{"slow_candidates", 3, 1, 4, slowCandidates},
	{"echo", 2, 1, 4, echoFault},
}

// pauseFor pauses the process. Before the process resumes, it serves a reader that is
// scheduled first.
func (f *fault) pauseFor(n *leasetest.Node, d time.Duration) {
	if n == nil || !n.Up() {
		return
	}
	f.note(n, "is paused")
	if f.w.StopsClock {
		n.Clock.Stop()
	}
	f.pauses[n.ID]++
	n.Pause()
	ticksFirst := f.r.IntN(2) == 0
	f.after(d, func() {
		if f.pauses[n.ID]--; f.pauses[n.ID] <= 0 {
			f.resume(n, ticksFirst)
		}
	})
}

func (s *sim) resume(n *leasetest.Node, ticksFirst bool) {
	s.pauses[n.ID] = 0
	if !n.Up() || !n.Paused() {
		n.Clock.Start()
		return
	}
	s.trace.note(s.c.Now(), n.ID, "goes on", "")
	n.Clock.Start()
	for key := range s.w.Keys {
		s.probe(n, s.linear.key(key))
		s.tryRead(n, s.linear.key(key))
	}
	n.Resume(ticksFirst)
}

// suspendFault stops a machine. The clock of a node that neither leads nor
// could serve may stop with it: assumption A2 concerns leaders.
func suspendFault(f *fault) {
	n := f.leaderOr()
	if n == nil {
		return
	}
	stops := n.Role() != raft.StateLeader && !n.Valid() && f.r.IntN(2) == 0
	if stops {
		f.note(n, "its clock stands still")
		n.Clock.Stop()
		f.mistrusted = true
	}
	f.pauseFor(n, f.For)
}

// crashFor kills the process, and some of the writes under way with it, and
// starts it again after d.
func (f *fault) crashFor(n *leasetest.Node, d time.Duration) { f.crashLosing(n, f.r.IntN(3), d) }

// crashLosing does so, and of the writes under way the oldest survive ones have
// reached the disk.
func (f *fault) crashLosing(n *leasetest.Node, survive int, d time.Duration) {
	if n == nil || !n.Up() {
		return
	}
	f.kill(n, survive)
	f.after(d, func() { f.restart(n) })
}

func (f *fault) kill(n *leasetest.Node, survive int) {
	f.note(n, "crashes")
	f.pauses[n.ID] = 0
	n.Clock.Start()
	if f.tears.IntN(100) < f.w.Tears {
		n.CrashTorn(survive, pick(f.tears, 0, 1, 2, math.MaxInt, math.MaxInt))
	}
	n.Crash(survive)
}

func (s *sim) restart(n *leasetest.Node) {
	if n.Up() {
		return
	}
	s.trace.note(s.c.Now(), n.ID, "starts again", "")
	n.Clock.SetFailed(false)
	n.Restart()
}

func crashMany(f *fault) {
	all := slices.Clone(f.c.Nodes())
	f.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, n := range all[:1+f.r.IntN(len(all))] {
		f.crashFor(n, between(f.r, 0, f.For))
	}
}

// diskStall makes writes that begin within the next f.For end after it.
func diskStall(f *fault) {
	n := f.leaderOr()
	if n == nil {
		return
	}
	f.note(n, "its disk stalls")
	f.stalled[n.ID] = max(f.stalled[n.ID], f.c.Now()+f.For)
	if n.Lease() != nil && f.r.IntN(2) == 0 {
		n.Lease().SetDiskStalled(true)
		run := n.Process()
		f.c.After(f.For, func() {
			if n.Up() && n.Process() == run {
				n.Lease().SetDiskStalled(false)
			}
		})
	}
}

// unstall ends disk stalls for writes that have not begun yet.
func (s *sim) unstall() {
	s.slowCandidates = 0
	for _, n := range s.c.Nodes() {
		s.stalled[n.ID], s.slowApply[n.ID], s.slowVotes[n.ID] = 0, 0, 0
		if n.Up() && n.Lease() != nil {
			n.Lease().SetDiskStalled(false)
		}
	}
}

// slowCandidates makes the disks of candidates slow for a while, and kills the first candidate
// that receives a vote before its disk has answered.
func slowCandidates(f *fault) {
	f.slowCandidates = f.c.Now() + f.For
	f.lines.when(f.For, func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgVoteResp && !m.GetReject()
	}, func(m *raftpb.Message) {
		f.after(between(f.r, 0, f.w.D), func() { f.crashLosing(f.c.Node(m.GetTo()), 0, f.beat()) })
	})
}

// echoFault delivers messages of a node again, late, and kills the node meanwhile: the messages
// of the earlier process reach others while the next process runs.
func echoFault(f *fault) {
	n := f.leaderOr()
	if n == nil {
		return
	}
	f.note(n, "what it says comes twice, the second time late")
	f.lines.add(&impairment{match: func(m *raftpb.Message) bool { return m.GetFrom() == n.ID }, dup: 0.5, echo: f.upTo(4), r: f.r}, f.For)
	f.after(between(f.r, 0, f.For), func() { f.crashLosing(n, f.r.IntN(2), f.beat()) })
}

var clockFaults = []faultKind{
	{"rates", 3, 0, 0, func(f *fault) {
		for _, n := range f.c.Nodes() {
			f.redrawClock(n, f.r)
		}
	}},
	{"rate", 3, 0, 0, func(f *fault) { f.redrawClock(f.any(nil), f.r) }},
	{"disrupt", 1, 0, 0, func(f *fault) {
		if n := f.leaderOr(); n != nil {
			f.note(n, "its clock is disrupted")
			n.Clock.Disrupt()
		}
	}},
	{"clock_fails", 1, 0.1, 2, failClock},
	{"clock_steps_back", 1, 0, 0, stepBack},
	{"slow_leader", 4, 0, 0, slowLeader},
	{"clock_jumps_ahead", 2, 0, 0, func(f *fault) {
		if n := f.leaderOr(); n != nil {
			f.jumpAhead(n)
		}
	}},
}

// failClock makes a clock unreadable for a while. A process cannot start with
// such a clock.
func failClock(f *fault) {
	n := f.leaderOr()
	if n == nil {
		return
	}
	f.note(n, "its clock cannot be read")
	n.Clock.SetFailed(true)
	f.c.After(f.For, func() { n.Clock.SetFailed(false) })
}

// stepBack sets a clock back while the node runs, and the node notices it. The node must hold
// as after a restart and give its lease up. A step that no reading shows, because the node is
// paused or has read the clock too long ago, breaks assumption A1. So stepBack calls Info,
// which reads the clock, before and after.
func stepBack(f *fault) {
	n := f.leaderOr()
	if n == nil || !n.Up() || n.Paused() || n.Lease() == nil {
		return
	}
	f.note(n, "its clock goes back")
	n.Lease().Info()
	n.Clock.Step(-between(f.r, 1, 4*f.w.D))
	n.Lease().Info()
	n.Lease().Info()
}

// jumpAhead sets a clock ahead and changes its disruption marker, as after a machine was moved or
// restored and its clock corrected. The node must still keep its promises.
func (f *fault) jumpAhead(n *leasetest.Node) {
	ahead := pick(f.r, f.w.D/2, 500*time.Millisecond, 900*time.Millisecond, time.Hour)
	f.note(n, "its clock jumps ahead")
	n.Clock.Step(ahead)
	n.Clock.Disrupt()
}

// jumpingVoters cuts the leader off at some point between two heartbeats, has
// the clocks of most voters jump ahead, and pushes.
func jumpingVoters(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.after(between(f.r, 0, f.beat()), func() {
			others := f.except(l.ID)
			f.lines.cutAll([]uint64{l.ID}, others, true, f.For)
			for _, id := range others {
				if f.r.IntN(4) != 0 {
					f.jumpAhead(f.c.Node(id))
				}
			}
			f.push(others, f.For)
		})
	})
}

// slowLeader makes the leader's clock as slow and all others as fast as the
// bound allows: the worst case for the margin.
func slowLeader(f *fault) {
	l := f.c.Leader()
	if l == nil {
		return
	}
	f.note(l, "has the slowest clock")
	rho := float64(f.w.DriftPPM+f.w.BeyondPPM) / 1e6
	for _, n := range f.c.Nodes() {
		n.Clock.SetRate(1 + rho)
	}
	l.Clock.SetRate(1 - rho)
}

// resignFaults make members resign before they stop.
var resignFaults = []faultKind{
	{"resign", 4, 0, 1, resignFault},
	{"resign_all", 2, 0, 0.2, resignAll},
}

// resignFault makes the leader resign, sometimes during a transfer. It names a successor by the
// log, or sometimes any node, which may be down or no voter.
func resignFault(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		if f.r.IntN(4) == 0 {
			f.transfer()
			f.after(between(f.r, 0, f.beat()), func() { f.resign(l, f.successor(l)) })
			return
		}
		f.resign(l, f.successor(l))
	})
}

// resignAll makes all nodes resign at once. Resigning does nothing on a node that does not lead.
func resignAll(f *fault) {
	for _, n := range f.c.Nodes() {
		f.resign(n, f.any(nil).ID)
	}
}

// resign makes n resign. If it led, it dies at once or soon, or runs on for a while, which
// embedders should not do.
func (f *fault) resign(n *leasetest.Node, to uint64) {
	if !n.Resign(to) {
		return
	}
	f.trace.note(f.c.Now(), n.ID, "resigns", "to", to)
	f.res.Resignations++
	run := process{n.ID, n.Process()}
	if !slices.Contains(slices.Collect(maps.Values(f.leases.winner)), run) {
		f.violatef("disjoint", n.ID, "resigns, and has never led")
	}
	f.leases.resigned[run], f.leases.resignedAt = true, f.c.Now()
	f.after(pick(f.r, 0, f.w.Latency, f.For), func() {
		if n.Process() == run.run {
			f.crashFor(n, between(f.r, 0, f.For))
		}
	})
}

// successor returns the voter with the most entries of l's log, or sometimes any node.
func (f *fault) successor(l *leasetest.Node) (to uint64) {
	if f.r.IntN(5) == 0 {
		return f.any(nil).ID
	}
	most := uint64(0)
	l.Raw().WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id != l.ID && typ == raft.ProgressTypePeer && pr.Match > most {
			to, most = id, pr.Match
		}
	})
	return to
}

// hasResigned checks that a process that has resigned serves no lease reads.
func (o *leaseOracle) hasResigned(s *sim, n *leasetest.Node) {
	if n.Up() && o.resigned[process{n.ID, n.Process()}] && n.Valid() {
		s.violatef("disjoint", n.ID, "the lease is valid after the node has resigned")
	}
}

// succeeded counts leaders that were elected before the promises would have ended.
func (s *sim) succeeded() {
	if w := s.leases.resignedAt; w > 0 && s.c.Now()-w < min(s.w.D/2, 100*time.Millisecond) {
		s.res.Successors++
	}
}

// deathFaults send members death notices, which are always true. Drawn schedules do not have
// them: see AddDeathNotices.
var deathFaults = []faultKind{
	{"death_notice", 4, 0, 3, deathProven},
	{"death_notice_former", 3, 0, 1, formerDeaths},
	{"death_notice_back", 3, 0, 0.1, restartedLeaderDeaths},
}

// AddDeathNotices adds deathFaults to a schedule. They are drawn from a stream of their own, so
// that the other faults of a seed do not change.
func (s *Schedule) AddDeathNotices() {
	s.addFaults(stream(s.Seed, streamDeaths), deathFaults, s.Swarm.Gap)
}

// deathProven kills the leader, and sends its death notice to nearly all others.
func deathProven(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.crashFor(l, f.For)
		f.sendDeathNotices(l)
	})
}

// formerDeaths sends the death notices of all earlier processes of the leader's node again.
func formerDeaths(f *fault) { f.withLeader(f.sendDeathNotices) }

// restartedLeaderDeaths kills the leader for a moment. The next leader hands leadership back to
// the same node, and then the death notices of its earlier processes arrive.
func restartedLeaderDeaths(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.crashFor(l, f.For)
		f.repeat(f.beat(), 6*f.w.electionTimeout(), func() bool {
			now := f.c.Leader()
			if now == nil || !l.Up() {
				return false
			}
			if now == l && l.Valid() {
				f.sendDeathNotices(l)
				return true
			}
			if now != l && !now.Paused() {
				now.Transfer(l.ID)
			}
			return false
		})
	})
}

// sendDeathNotices sends the death notice of each dead process of l to the other nodes, with a
// chance of nine in ten: within milliseconds or late, and sometimes twice.
func (f *fault) sendDeathNotices(l *leasetest.Node) {
	for _, dead := range f.dead[l.ID] {
		for _, n := range f.c.Nodes() {
			for n != l && f.r.IntN(10) > 0 {
				f.after(between(f.r, 0, pickDelay(f)), func() {
					f.trace.note(f.c.Now(), n.ID, "hears of a death", "of process", l.ID, uint64(dead[15]))
					n.ProcessDied(l.ID, dead)
				})
				if f.r.IntN(4) > 0 {
					break
				}
			}
		}
	}
}

func pickDelay(f *fault) time.Duration {
	return pick(f.r, 5*time.Millisecond, 5*time.Millisecond, f.w.D, 3*f.w.electionTimeout())
}

// died records that the present process of n has died.
func (s *sim) died(n *leasetest.Node) {
	s.dead[n.ID] = append(s.dead[n.ID], n.ProcessID())
	s.dead[n.ID] = s.dead[n.ID][max(0, len(s.dead[n.ID])-3):]
}

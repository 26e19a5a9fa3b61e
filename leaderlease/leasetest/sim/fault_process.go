package sim

import (
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

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

// pauseFor stops the process. Before it goes on, a reader that is scheduled
// first asks it.
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
	f.lines.add(&trouble{match: func(m *raftpb.Message) bool { return m.GetFrom() == n.ID }, dup: 0.5, echo: f.upTo(4), r: f.r}, f.For)
	f.after(between(f.r, 0, f.For), func() { f.crashLosing(n, f.r.IntN(2), f.beat()) })
}

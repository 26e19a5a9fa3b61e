package raftsim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// network delivers messages to the running incarnation of a member.
type network struct {
	s *sim
	// cut links lose everything, one way.
	cut map[[2]uint64]bool
	// parted links lose everything until an instant, whatever is joined.
	parted map[[2]uint64]time.Duration
	// mute links lose a leader's appends, until an instant.
	mute map[[2]uint64]time.Duration
	// slow types of messages wait.
	slow      [numTypes]time.Duration
	slowUntil time.Duration
	// old are the last messages sent, which may be delivered again.
	old  [512]packet
	sent int
}

// packet is a message under way, and its sender.
type packet struct {
	from *node
	run  int
	m    *raftpb.Message
}

func (w *network) send(from *node, m *raftpb.Message) {
	s := w.s
	s.judge.leaves(from, m)
	s.noteMessage(from, "sends", m)
	l := packet{from, from.run, m}
	w.old[w.sent%len(w.old)] = l
	w.sent++
	lost := w.loses(m)
	if !lost {
		w.carry(l, w.delay(m))
		if !s.healed && chance(s.rng, s.w.double) {
			w.carry(l, w.delay(m))
		}
	}
	if !s.healed && chance(s.rng, s.w.late) {
		w.carry(l, between(s.rng, 0, 2*time.Second))
	}
	if m.GetType() == raftpb.MsgSnap {
		w.report(from, m.GetTo(), lost)
	}
	s.crashIfVolatile(from, m)
}

func (w *network) loses(m *raftpb.Message) bool {
	link := [2]uint64{m.GetFrom(), m.GetTo()}
	muted := m.GetType() == raftpb.MsgApp && w.s.now < w.mute[link]
	return !w.s.healed && (w.cut[link] || w.s.now < w.parted[link] || muted || chance(w.s.rng, w.s.w.loss))
}

// muteSome lets about half of what from appends elsewhere get lost for a while.
func (w *network) muteSome(from *node, d time.Duration) {
	for _, n := range w.s.nodes {
		if chance(w.s.rng, 0.5) {
			w.mute[[2]uint64{from.id, n.id}] = w.s.now + d
		}
	}
}

func (w *network) delay(m *raftpb.Message) time.Duration {
	d := soon(w.s.rng, w.s.w.net)
	if w.s.now < w.slowUntil {
		d += w.slow[m.GetType()]
	}
	return d
}

// report reports to the sender whether a snapshot has arrived, sometimes wrongly.
func (w *network) report(from *node, to uint64, lost bool) {
	status := raft.SnapshotFinish
	if lost != chance(w.s.rng, 0.05) {
		status = raft.SnapshotFailure
	}
	from.later(soon(w.s.rng, 4*w.s.w.net), func() {
		from.p.raw.ReportSnapshot(to, status)
		from.pump()
	})
}

func (w *network) carry(l packet, d time.Duration) {
	w.s.after(d, func() {
		to := w.s.node(l.m.GetTo())
		if to == nil || to.p == nil {
			return
		}
		to.resume(to.run, func() { w.deliver(to, l) })
	})
}

func (w *network) deliver(to *node, l packet) {
	if w.s.cfg.Rules.OwnTermReads && l.m.GetType() == raftpb.MsgReadIndex && !to.mayAnswerReads() {
		w.s.res.Count.RefusedReads++
		return
	}
	if l.m.GetType() == raftpb.MsgProp && !to.mayAppend() {
		w.s.res.Count.QuietProposals++
		return
	}
	what := "gets"
	if l.run != l.from.run || l.from.p == nil {
		what = "gets what a former incarnation sent:"
	}
	w.s.noteMessage(to, what, l.m)
	to.step(copyOf(l.m))
}

// copyOf returns a shallow copy for Step: raft changes the messages that it forwards, but not the
// entries and snapshots in them.
func copyOf(m *raftpb.Message) *raftpb.Message {
	return &raftpb.Message{
		Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index,
		Entries: append([]*raftpb.Entry(nil), m.GetEntries()...), Commit: m.Commit, Vote: m.Vote, Snapshot: m.GetSnapshot(),
		Reject: m.Reject, RejectHint: m.RejectHint, Context: m.GetContext(),
	}
}

// replay delivers some old messages again, preferably those of earlier incarnations.
func (w *network) replay(n int) {
	for range n {
		l := w.old[w.s.rng.IntN(len(w.old))]
		if l.from == nil || l.run == l.from.run && chance(w.s.rng, 0.7) {
			continue
		}
		w.s.res.Count.Replayed++
		w.carry(l, soon(w.s.rng, w.s.w.net))
	}
}

// isolate cuts the links of a member, in one direction or both.
func (w *network) isolate(id uint64, in, out bool) {
	for _, n := range w.s.nodes {
		if n.id != id {
			w.cutLink(n.id, id, in)
			w.cutLink(id, n.id, out)
		}
	}
}

func (w *network) cutLink(from, to uint64, cut bool) {
	if cut {
		w.cut[[2]uint64{from, to}] = true
	}
}

// part cuts the links between side and all others, both ways, until an instant. An
// instant that has passed joins them.
func (w *network) part(side []uint64, until time.Duration) {
	for _, n := range w.s.nodes {
		for _, id := range side {
			if !slices.Contains(side, n.id) {
				w.parted[[2]uint64{n.id, id}], w.parted[[2]uint64{id, n.id}] = until, until
			}
		}
	}
}

// split parts the members at random.
func (w *network) split() {
	side := make([]bool, len(w.s.nodes))
	for i := range side {
		side[i] = chance(w.s.rng, 0.5)
	}
	for i := range side {
		for j := range side {
			w.cutLink(uint64(i+1), uint64(j+1), side[i] != side[j])
		}
	}
}

func (w *network) join() {
	w.cut = make(map[[2]uint64]bool)
	w.mute = make(map[[2]uint64]time.Duration)
}

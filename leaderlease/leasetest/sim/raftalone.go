package sim

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// RunRaftAlone makes all nodes of a schedule bare RawNodes, without the library, and adds
// raftFaults. It draws raft's options and limits, which vary more than with leases.
func (s *Schedule) RunRaftAlone() {
	w, r := &s.Swarm, stream(s.Seed, streamRaft)
	w.RaftAlone, w.Bare, w.Plain, w.Stock = true, false, 0, 0
	w.Async = ^uint64(0)
	w.NoPreVote, w.NoQuorum = r.IntN(4) == 0, r.IntN(4) == 0
	w.MaxSize, w.MaxCommitted = pick(r, 0, 64, uint64(1)<<20), pick(r, 1, 64, 1<<20, uint64(1)<<20)
	if w.MaxInflight = pick(r, 1, 4, 256); w.MaxSize < 1<<20 {
		w.MaxInflight = min(w.MaxInflight, 4) // reordered, many small appends are rejected again and again
	}
	w.Tell, w.SlowTell = between(r, 0, w.Tick), pick(r, 0, 5, 20)
	s.addFaults(r, raftFaults, w.Gap)
}

// omitted returns the rules that the nodes omit.
func (w *Swarm) omitted() (r leasetest.Rules) {
	if w.Without != "" {
		reflect.ValueOf(&r).Elem().FieldByName(w.Without).SetBool(true)
	}
	r.DurableConf = r.DurableConf || w.Bare
	r.CommitHints = r.CommitHints || w.Bare || w.RaftAlone
	if w.Bare && w.RaftAlone {
		r.QuietExit, r.HoldAppends = true, true
	}
	return r
}

func (s *sim) amendRaft(c *raft.Config) {
	if w := s.w; w.RaftAlone {
		c.MaxSizePerMsg, c.MaxCommittedSizePerReady, c.MaxInflightMsgs = w.MaxSize, w.MaxCommitted, w.MaxInflight
		c.PreVote, c.CheckQuorum = !w.NoPreVote, !w.NoQuorum
	}
}

// raftFaults aim at data that is not durable. Schedules with leases do not have them.
var raftFaults = []faultKind{
	{"crash_volatile", 6, 0.5, 2, crashVolatile},
	{"crash_leaving", 3, 1, 3, crashLeaving},
	{"campaign_untold", 2, 1, 3, campaignUntold},
	{"crash_former_voter", 3, 1, 2, crashFormerVoter},
}

// crashVolatile crashes the next sender of a message with data that is not durable yet. Its disk
// stalls, and about half of the others do not get its entries. The next process starts at once,
// receives messages that were sent before the crash, and often campaigns.
func crashVolatile(f *fault) {
	t := pick(f.r, raftpb.MsgVote, raftpb.MsgVote, raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgHeartbeatResp,
		raftpb.MsgApp, raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgReadIndexResp, raftpb.MsgSnap, raftpb.MsgTimeoutNow)
	if t == raftpb.MsgVote {
		f.stallCandidates()
	}
	f.lines.when(f.For, func(m *raftpb.Message) bool {
		return m.GetType() == t && f.c.Node(m.GetFrom()).Volatile(m).Any()
	}, func(m *raftpb.Message) {
		n, et := f.c.Node(m.GetFrom()), f.w.electionTimeout()
		f.note(n, "is to lose data of a message")
		f.stalled[n.ID] = max(f.stalled[n.ID], f.c.Now()+et)
		half := f.r.Uint64()
		f.lines.add(&impairment{match: func(m *raftpb.Message) bool {
			return m.GetFrom() == n.ID && m.GetType() == raftpb.MsgApp && has(half, m.GetTo())
		}, loss: 1, r: f.r}, et)
		f.lines.add(&impairment{match: func(m *raftpb.Message) bool { return m.GetFrom() == n.ID }, dup: 0.5, echo: 2 * et, r: f.r}, et)
		f.after(between(f.r, 0, et*6/10), func() {
			f.stalled[n.ID] = 0
			f.crashLosing(n, 0, between(f.r, 0, et/10))
			f.after(et/10+time.Millisecond, func() {
				if f.r.IntN(10) < 7 {
					n.Campaign()
				}
			})
		})
	})
}

// stallCandidates stalls the disk of the next candidates.
func (f *fault) stallCandidates() {
	f.slowCandidates = max(f.slowCandidates, f.c.Now()+f.For)
	if f.r.IntN(2) == 0 {
		f.transfer()
	}
}

// crashLeaving removes or demotes the leader. As soon as the leader knows that this is committed,
// the others get nothing from it any more, and it crashes soon.
func crashLeaving(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		to, ok := f.without(l)
		if !ok {
			return
		}
		run := l.Process()
		f.change(to)
		f.repeat(f.w.Latency/4, f.For, func() bool {
			if l.Process() != run || l.Role() != leaderRole {
				return true
			}
			if index := l.Leaves(); index == 0 || l.Raw().BasicStatus().GetCommit() < index {
				// Entries behind the change make the leader's log the longest.
				f.writeAt(l, f.linear.key(0))
				return false
			}
			f.note(l, "is cut off, just as it has committed that it leaves")
			f.lines.cutAll([]uint64{l.ID}, f.except(l.ID), false, f.upTo(2))
			f.after(f.upTo(3), func() { f.crashFor(l, f.upTo(1)) })
			return true
		})
	})
}

// campaignUntold makes nodes compact their logs and campaign, while raft may not know yet that
// the entries are applied.
func campaignUntold(f *fault) {
	f.repeat(f.w.Tick, f.For, func() bool {
		if n := f.any(follows); n != nil {
			n.Compact()
			n.Campaign()
		}
		return false
	})
}

// crashFormerVoter shrinks the group to the leader and one other voter, removes that one, and stalls
// the leader's disk before it writes one more entry. The leader crashes, and loses that entry, as
// soon as the other node has applied its removal.
func crashFormerVoter(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		x := f.any(func(n *leasetest.Node) bool { return n != l && slices.Contains(voters(l), n.ID) })
		if x == nil {
			return
		}
		pair := configuration{voters: []uint64{l.ID, x.ID}}
		f.changeThen(l, pair, pair.is, func() {
			f.note(l, "removes the other voter, and its disk stalls")
			f.changeBy(configuration{voters: []uint64{l.ID}}, raftpb.ConfChangeTransitionAuto)
			f.stalled[l.ID] = f.c.Now() + 2*f.w.electionTimeout()
			f.writeAt(l, f.linear.key(0))
			f.repeat(time.Millisecond, f.For, func() bool {
				if !l.Up() || slices.Contains(x.Conf().GetVoters(), x.ID) {
					return !l.Up()
				}
				f.stalled[l.ID] = 0
				f.crashLosing(l, 0, f.beat())
				return true
			})
		})
		f.after(f.For+3*f.w.electionTimeout(), func() { f.change(f.home()) })
	})
}

// checkDurable checks that a granted vote and an acknowledged append are durable when they leave,
// and counts the data that is not.
func (s *sim) checkDurable(m *raftpb.Message) {
	n := s.c.Node(m.GetFrom())
	if n == nil || !s.w.RaftAlone {
		return
	}
	s.res.Volatile[m.GetType()].add(n.Volatile(m))
	if m.GetReject() {
		return
	}
	h, term := n.HardState(), m.GetTerm()
	early := h.GetTerm() < term
	switch m.GetType() {
	case raftpb.MsgVoteResp:
		early = early || h.GetTerm() == term && h.GetVote() != m.GetTo()
	case raftpb.MsgAppResp:
		early = early || h.GetTerm() == term && n.LastIndex() < m.GetIndex()
	default:
		return
	}
	if early {
		s.violatef("raft", n.ID, "%v to %d of term %d and index %d leaves before it is durable", m.GetType(), m.GetTo(), term, m.GetIndex())
	}
}

// volatileCount counts messages, and those with data that was not durable at their sender.
type volatileCount struct{ Sent, Term, Entry, Commit int }

func (c *volatileCount) add(v leasetest.Volatile) {
	c.Sent++
	c.Term += bit(v.Term)
	c.Entry += bit(v.Entry)
	c.Commit += bit(v.Commit)
}

const numTypes = int(raftpb.MsgForgetLeader) + 1

// volatileTable describes, for each type of message, how many had data that was not durable.
func (r *Result) volatileTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-18s %10s %10s %10s %10s\n", "not durable when", "sent", "its term", "an entry", "commit")
	for i, n := range r.Volatile {
		if n.Sent > 0 {
			fmt.Fprintf(&b, "%-18s %10d %10d %10d %10d\n", raftpb.MessageType(i), n.Sent, n.Term, n.Entry, n.Commit)
		}
	}
	return b.String()
}

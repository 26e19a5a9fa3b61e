package leasetest

import (
	"context"

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

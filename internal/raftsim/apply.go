package raftsim

import (
	"encoding/binary"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// applyNext takes the next MsgStorageApply, if the machine is free.
func (n *node) applyNext() {
	if n.p.applying || len(n.p.applies) == 0 {
		return
	}
	n.p.applying = true
	m := n.p.applies[0]
	n.p.applies = n.p.applies[1:]
	n.later(soon(n.s.rng, n.s.w.apply), func() {
		n.awaitDurableConf(m, func() { n.apply(m) })
	})
}

// awaitDurableConf is the rule DurableConf: what follows waits until the commit
// index covers the last configuration change in m. The flush is queued behind all
// writes there are, so that what the leader has sent before it knew of the commit
// is durable as well.
func (n *node) awaitDurableConf(m *raftpb.Message, then func()) {
	var last uint64
	for _, e := range m.GetEntries() {
		if e.GetType() != raftpb.EntryNormal {
			last = e.GetIndex()
		}
	}
	if !n.s.cfg.Rules.DurableConf || n.disk.hard.commit >= last {
		then()
		return
	}
	n.s.res.Count.FlushedConfs++
	n.disk.push(&write{flush: last, done: then})
}

// apply brings the machine up to the last entry of m, and tells raft later.
func (n *node) apply(m *raftpb.Message) {
	p := n.p
	for _, e := range m.GetEntries() {
		if e.GetIndex() <= p.machine.applied {
			continue // a snapshot was faster
		}
		n.applyEntry(e)
	}
	n.s.judge.applied(n)
	p.applying = false
	n.tell(m)
	n.applyNext()
	n.maybeCheckpoint()
	n.pump() // ApplyConfChange may have made something ready
}

func (n *node) applyEntry(e *raftpb.Entry) {
	p := n.p
	// Raft has the configuration of a snapshot as soon as it has accepted it, and
	// an older change must not undo that.
	if cc := confChange(e); cc != nil && e.GetIndex() > p.restored {
		p.machine.conf = p.raw.ApplyConfChange(cc)
		n.s.note(n, "applies %s: %s", describeEntry(e), describeConf(p.machine.conf))
	}
	p.machine.applied, p.machine.chain = e.GetIndex(), link(p.machine.chain, e)
	n.s.judge.appliedEntry(n, e)
	if data := e.GetData(); e.GetType() == raftpb.EntryNormal && len(data) == 8 {
		if id := binary.LittleEndian.Uint64(data); p.waiting[id] {
			delete(p.waiting, id)
			n.s.judge.acknowledge(n, e.GetIndex())
		}
	}
}

// tell lets raft know what is applied, in order.
func (n *node) tell(m *raftpb.Message) {
	d := soon(n.s.rng, n.s.w.tell)
	if chance(n.s.rng, n.s.w.slowTell) {
		n.p.tellLate = n.s.now + between(n.s.rng, 0, 300*time.Millisecond)
	}
	d = max(d, n.p.tellLate-n.s.now)
	n.p.tellLate = max(n.p.tellLate, n.s.now+d)
	n.later(n.p.tellLate-n.s.now, func() {
		entries := m.GetEntries()
		n.p.told = max(n.p.told, entries[len(entries)-1].GetIndex())
		n.respond(m.GetResponses())
	})
}

// maybeCheckpoint takes a checkpoint now and then. It is durable a while later,
// and then the log is cut off.
func (n *node) maybeCheckpoint() {
	p := n.p
	first, err := n.disk.log.FirstIndex()
	must(err)
	if p.checkpointing || p.machine.applied < first-1+n.s.w.checkpointEvery+n.s.w.keep {
		return
	}
	n.checkpoint()
}

func (n *node) checkpoint() {
	p := n.p
	term, err := n.disk.log.Term(p.machine.applied)
	if p.checkpointing || err != nil || p.machine.applied <= 1 || p.machine.applied < p.restored {
		return
	}
	p.checkpointing = true
	snap := p.machine.snapshot(term)
	n.later(soon(n.s.rng, 4*n.s.w.disk), func() {
		p.checkpointing = false
		n.compact(snap)
	})
}

// compact keeps some entries before the checkpoint for followers and, by the rule
// CompactByRaft, what raft may still read.
func (n *node) compact(snap *raftpb.Snapshot) {
	to := snap.GetMetadata().GetIndex()
	if n.s.cfg.Rules.CompactByRaft && to > n.p.told {
		to = n.p.told
		n.s.res.Count.ShortCompactions++
	}
	to -= min(to, n.s.w.keep)
	n.disk.checkpoint(snap, to)
	n.s.note(n, "has a checkpoint at %d, compacts to %d, raft was told %d", snap.GetMetadata().GetIndex(), to, n.p.told)
	if n.s.w.tempted > 0 && n.p.told < to && chance(n.s.rng, n.s.w.tempted/2) {
		n.campaign()
	}
}

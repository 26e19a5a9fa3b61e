package raftsim

import (
	"encoding/binary"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// machine is the state machine: a hash over all entries applied, and the
// configuration.
type machine struct {
	applied uint64
	chain   uint64
	conf    *raftpb.ConfState
}

// initialChain is the state at index 1.
const initialChain = 1

// link is the state after an entry.
func link(chain uint64, e *raftpb.Entry) uint64 {
	t := trace{hash: chain}
	t.mix(e.GetIndex(), fingerprint(e))
	return t.hash
}

// fingerprint is of an entry but for its index.
func fingerprint(e *raftpb.Entry) uint64 {
	t := trace{hash: 1469598103934665603}
	t.mix(e.GetTerm(), uint64(e.GetType()), uint64(len(e.GetData())))
	for _, b := range e.GetData() {
		t.mix(uint64(b))
	}
	return t.hash
}

func encodeChain(chain uint64) []byte { return binary.LittleEndian.AppendUint64(nil, chain) }

func decodeChain(data []byte) uint64 { return binary.LittleEndian.Uint64(data) }

func (m *machine) snapshot(term uint64) *raftpb.Snapshot {
	return &raftpb.Snapshot{
		Data:     encodeChain(m.chain),
		Metadata: &raftpb.SnapshotMetadata{Index: new(m.applied), Term: new(term), ConfState: proto.CloneOf(m.conf)},
	}
}

func (m *machine) restore(snap *raftpb.Snapshot) {
	meta := snap.GetMetadata()
	*m = machine{applied: meta.GetIndex(), conf: meta.GetConfState()}
	if m.applied > 0 {
		m.chain = decodeChain(snap.GetData())
	}
}

// confChange is the change in an entry, nil if there is none.
func confChange(e *raftpb.Entry) raftpb.ConfChangeI {
	switch e.GetType() {
	case raftpb.EntryConfChange:
		v1 := &raftpb.ConfChange{}
		must(proto.Unmarshal(e.GetData(), v1))
		return v1
	case raftpb.EntryConfChangeV2:
		v2 := &raftpb.ConfChangeV2{}
		must(proto.Unmarshal(e.GetData(), v2))
		return v2
	default:
		return nil
	}
}

// logView is the log as a process has it, durable or not: the judge's own copy.
type logView struct {
	base     uint64 // index of the snapshot that it begins with
	baseTerm uint64
	entries  []logEntry // of the indexes after base
}

type logEntry struct {
	term, print uint64
	conf        bool
	// gone has a bit for each member that a change removes or demotes.
	gone uint64
}

func viewOf(e *raftpb.Entry) logEntry {
	v := logEntry{term: e.GetTerm(), print: fingerprint(e)}
	if cc := confChange(e); cc != nil {
		v.conf = true
		for _, c := range cc.AsV2().GetChanges() {
			if c.GetType() != raftpb.ConfChangeAddNode {
				v.gone |= 1 << c.GetNodeId()
			}
		}
	}
	return v
}

// load begins the view with what is durable.
func (l *logView) load(disk *raft.MemoryStorage) {
	first, err := disk.FirstIndex()
	must(err)
	last, err := disk.LastIndex()
	must(err)
	*l = logView{base: first - 1}
	l.baseTerm, err = disk.Term(l.base)
	must(err)
	if last < first {
		return
	}
	entries, err := disk.Entries(first, last+1, 1<<62)
	must(err)
	l.append(nil, entries)
}

// append follows what a Ready adds to the log.
func (l *logView) append(snap *raftpb.Snapshot, entries []*raftpb.Entry) {
	if !raft.IsEmptySnap(snap) {
		*l = logView{base: snap.GetMetadata().GetIndex(), baseTerm: snap.GetMetadata().GetTerm()}
	}
	for _, e := range entries {
		l.entries = append(l.entries[:e.GetIndex()-l.base-1], viewOf(e))
	}
}

func (l *logView) last() uint64 { return l.base + uint64(len(l.entries)) }

// at returns the entry at an index after base and up to last.
func (l *logView) at(index uint64) logEntry { return l.entries[index-l.base-1] }

// term is the term of the entry at index, 0 if it is not in the log.
func (l *logView) term(index uint64) uint64 {
	switch {
	case index == l.base:
		return l.baseTerm
	case index < l.base || index > l.last():
		return 0
	default:
		return l.at(index).term
	}
}

// firstConf returns the first change of configuration after one index and up to
// another, 0 if there is none.
func (l *logView) firstConf(after, to uint64) uint64 {
	for i := max(after, l.base) + 1; i <= min(to, l.last()); i++ {
		if l.at(i).conf {
			return i
		}
	}
	return 0
}

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
	if n.s.w.volatileCrash > 0 && n.p.told < to && chance(n.s.rng, n.s.w.volatileCrash/2) {
		n.campaign()
	}
}

package raftsim

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

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

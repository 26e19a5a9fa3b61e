package raftsim

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"
)

// commits judges the entries that n knows to be committed from now on.
func (j *judge) commits(n *node, from, to uint64) {
	log := &n.p.log
	if to > log.last() {
		j.s.violate("diverged", "member %s has committed %d, and its log ends at %d", n.name(), to, log.last())
		return
	}
	if log.base > from {
		j.snapshot(n, log.base, log.baseTerm)
		from = log.base
	}
	for index := from + 1; index <= to; index++ {
		j.commit(n, index, log.at(index))
	}
}

func (j *judge) commit(n *node, index uint64, e logEntry) {
	if index > j.committedTo()+1 {
		j.s.violate("diverged", "member %s has committed %d, and no member %d", n.name(), index, index-1)
		return
	}
	if index == j.committedTo()+1 {
		chain := trace{hash: j.committed[index-2].chain}
		chain.mix(index, e.print)
		j.committed = append(j.committed, fact{e, chain.hash, n.p.hard.term})
		j.s.res.Count.Commits++
		return
	}
	if f := j.committed[index-1]; f.logEntry != e && index > 1 {
		j.s.violate("diverged", "member %s has committed an entry of term %d at %d, where one of term %d was committed", n.name(), e.term, index, f.term)
	}
}

// recovered judges that what a log proves to be committed is.
func (j *judge) recovered(n *node, commit uint64) {
	if commit > j.committedTo() {
		j.s.violate("diverged", "member %s takes %d for committed, and only %d is", n.name(), commit, j.committedTo())
		return
	}
	j.commits(n, n.p.hard.commit, commit)
}

// snapshot judges that what raft accepts from a leader is what was committed.
func (j *judge) snapshot(n *node, index, term uint64) {
	if index > j.committedTo() {
		j.s.violate("diverged", "member %s accepts a snapshot at %d, and only %d is committed", n.name(), index, j.committedTo())
	} else if f := j.committed[index-1]; f.term != term {
		j.s.violate("diverged", "member %s accepts a snapshot of term %d at %d, where term %d was committed", n.name(), term, index, f.term)
	}
}

// applied judges the state of a machine.
func (j *judge) applied(n *node) {
	m := &n.p.machine
	if m.applied > j.committedTo() || m.applied > 0 && j.committed[m.applied-1].chain != m.chain {
		j.s.violate("diverged", "the state of member %s at %d is not what was committed", n.name(), m.applied)
	}
}

// appliedEntry follows configurations, and the proposals that show recovery.
func (j *judge) appliedEntry(n *node, e *raftpb.Entry) {
	if e.GetType() != raftpb.EntryNormal {
		if e.GetIndex() > n.p.restored {
			j.addConf(e.GetIndex(), n.p.machine.conf)
		}
		return
	}
	if data := e.GetData(); j.s.healed && j.probed == 0 && len(data) == 8 && binary.LittleEndian.Uint64(data) >= j.s.load.probe {
		j.probed = e.GetIndex()
	}
}

// addConf records the configuration after a change, which must be the same on all members.
func (j *judge) addConf(index uint64, conf *raftpb.ConfState) {
	for i := len(j.confs) - 1; i >= 0 && j.confs[i].index >= index; i-- {
		if j.confs[i].index > index {
			continue
		}
		if err := j.confs[i].conf.Equivalent(conf); err != nil {
			j.s.violate("diverged", "two configurations at %d: %v", index, err)
		}
		return
	}
	if len(j.confs) > 0 {
		j.s.res.Count.Changes++
	}
	// A slow member may apply an older change that no living member has applied. The newest
	// configuration stays last.
	j.confs = append(j.confs, confFact{index, conf})
	for i := len(j.confs) - 1; i > 0 && j.confs[i-1].index > index; i-- {
		j.confs[i-1], j.confs[i] = j.confs[i], j.confs[i-1]
	}
	for _, ids := range [][]uint64{conf.GetVoters(), conf.GetLearners(), conf.GetLearnersNext(), conf.GetVotersOutgoing()} {
		for _, id := range ids {
			j.members[id] = true
		}
	}
}

func (j *judge) newestConf() (uint64, *raftpb.ConfState) {
	c := j.confs[len(j.confs)-1]
	return c.index, c.conf
}

// acknowledge records an acknowledgement to a client.
func (j *judge) acknowledge(n *node, index uint64) {
	j.acked = max(j.acked, index)
	j.s.res.Count.Acked++
	j.s.note(n, "acknowledges %d", index)
}

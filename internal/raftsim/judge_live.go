package raftsim

import (
	"fmt"
	"strings"
)

// recovered reports whether something that was proposed after healing is applied
// by every member of the newest configuration.
func (s *sim) recovered() bool {
	if s.judge.probed == 0 {
		return false
	}
	_, conf := s.judge.newestConf()
	for _, n := range s.nodes {
		if isMember(conf, n.id) && (n.p == nil || n.p.machine.applied < s.judge.probed) {
			return false
		}
	}
	return true
}

// judgeEnd judges that the cluster has recovered, and that no acknowledged entry is missing.
func (s *sim) judgeEnd() {
	if !s.recovered() {
		s.violate("no leader", "nothing was committed and applied everywhere within %v of healing: %s", recovery, s.state())
		return
	}
	s.res.Count.Healing = s.now - s.judge.healedAt
	if s.judge.acked > s.judge.committedTo() {
		s.violate("lost", "%d was acknowledged, %d is committed", s.judge.acked, s.judge.committedTo())
	}
}

// state describes the state of every node, for people.
func (s *sim) state() string {
	index, conf := s.judge.newestConf()
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %d;", describeConf(conf), index)
	for _, n := range s.nodes {
		switch {
		case n.off:
			fmt.Fprintf(&b, " %d is off;", n.id)
		case n.p == nil:
			fmt.Fprintf(&b, " %d is down;", n.id)
		default:
			st := n.p.raw.Status()
			fmt.Fprintf(&b, " %s %v of %v, term %d, commit %d, applied %d, last %d/%d;", n.name(), n.p.soft.RaftState,
				st.Config, st.GetTerm(), st.GetCommit(), n.p.machine.applied, n.p.log.last(), n.p.log.term(n.p.log.last()))
		}
	}
	return b.String()
}

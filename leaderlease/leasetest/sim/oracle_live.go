package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// finish heals the cluster and checks it. A healed cluster must serve lease reads: otherwise a
// library that never serves any would pass.
func (s *sim) finish() {
	s.heal()
	if s.cfg.Misused {
		s.advance(3 * (s.w.D + s.w.electionTimeout()))
		s.summarise()
		return
	}
	if s.w.mayStayWithoutLeader() {
		s.finishBare()
		return
	}
	// Two voters that time out at one tick split their votes, with five ticks to
	// choose from three times in a row in one run of two thousand.
	limit := s.recovery()
	start := s.c.Now()
	var l *leasetest.Node
	healthy := func() bool { l = s.serving(); return l != nil || s.violated() }
	// A change of the configuration that comes to light only now may move leadership
	// once more, and then the time begins anew.
	for known, served := ^uint64(0), false; !served && known != s.operator.index; {
		known = s.operator.index
		served = s.c.RunUntil(limit, healthy)
	}
	switch {
	case l == nil && s.w.BeyondPPM > 0:
		// Leaders rightly distrust such clocks.
		s.summarise()
		return
	case l == nil:
		s.violatef("liveness", 0, "no leader serves within %v of healing: %s", limit, s.describe())
	}
	s.res.Recovery = s.c.Now() - start
	// A configuration change that was under way may move leadership once more.
	for tries := 0; !s.violated() && !s.serves(l); tries++ {
		again := s.c.RunUntil(limit, healthy)
		if !again || l == nil || tries == 3 {
			s.violatef("liveness", 0, "the healed leader refuses more than 1 in 100 lease reads: %s", s.describe())
		}
	}
	if !s.violated() {
		s.converge()
	}
	s.summarise()
}

// mayStayWithoutLeader reports whether raft alone may elect no leader. Without PreVote, which the library
// requires, a member that has missed changes may campaign in ever higher terms, in which the others ignore
// the only candidate that could win.
func (w *Swarm) mayStayWithoutLeader() bool { return w.Bare || w.NoPreVote }

// recovery is how long a healed cluster may take to serve. The only node that can be elected may have to
// campaign once for each term that others are ahead.
func (s *sim) recovery() time.Duration {
	if !s.w.RaftAlone {
		return 10 * (s.w.D + s.w.electionTimeout())
	}
	oldest, newest := ^uint64(0), uint64(0)
	for _, n := range s.c.Nodes() {
		oldest, newest = min(oldest, n.Term()), max(newest, n.Term())
	}
	return (60 + 2*time.Duration(newest-oldest)) * s.w.electionTimeout()
}

// finishBare looks for acknowledged writes once bare nodes have a leader, if they get one.
func (s *sim) finishBare() {
	var l *leasetest.Node
	s.c.RunUntil(s.recovery(), func() bool {
		l = s.serving()
		return l != nil || s.violated()
	})
	if l != nil {
		s.advance(s.convergence())
		if l.Valid() && !s.violated() {
			s.checkAcks(s.furthest()) // the leader may be slower to apply than a follower
		}
	}
	s.summarise()
}

// convergence is how long members need at most to catch up.
func (s *sim) convergence() time.Duration {
	return 2*s.w.electionTimeout() + 10*(s.w.Disk+s.w.Apply+s.w.Step)
}

func (s *sim) summarise() {
	s.res.Elapsed = s.c.Now()
	for _, n := range s.c.Nodes() {
		s.res.HeldBack += n.HeldBack()
		s.res.Torn += n.Torn()
		if n.Up() {
			s.collect(n)
		}
	}
	if !s.violated() {
		s.checkHistories()
	}
}

// heal ends every fault.
func (s *sim) heal() {
	s.trace.note(s.c.Now(), 0, "everything heals", "")
	s.healed = true
	s.lines.heal()
	s.unstall()
	for _, n := range s.c.Nodes() {
		n.Clock.SetRate(1)
		n.Clock.SetFailed(false)
		n.TearNext(nil, nil)
		s.restart(n)
		s.resume(n, true)
		if s.needsRestart(n) {
			n.Crash(0)
			s.restart(n)
		}
	}
	s.operate()
}

// needsRestart reports whether the library remembers something about n's clock,
// or n was given another promise, that would keep a healthy cluster from lease
// reads for longer than the liveness oracle waits.
func (s *sim) needsRestart(n *leasetest.Node) bool {
	if n.Lease() == nil {
		return false
	}
	// Mistrust of a clock that stood still lasts for twice as long as it took to
	// notice.
	odd := s.scale[n.ID] != 0 || s.mistrusted || n.Lease().Info().Status == core.ClockFault || n.Lease().Info().Status == core.Closed
	s.scale[n.ID] = 0
	return odd
}

// serving returns the leader once it serves lease reads if it can, nil until then.
func (s *sim) serving() *leasetest.Node {
	l := s.c.Leader()
	if l == nil || !s.newestConf(l) {
		return nil
	}
	if s.canLease(l) && !l.Valid() {
		return nil
	}
	return l
}

// newestConf reports whether l has applied every configuration that any node has applied. Only
// then is l known to be a leader of the present group.
func (s *sim) newestConf(l *leasetest.Node) bool {
	for _, n := range s.c.Nodes() {
		// A leader that is slow to apply may be behind in entries for long.
		if n.Applied() > l.Applied() && !proto.Equal(n.Conf(), l.Conf()) {
			return false
		}
	}
	return true
}

// canLease reports whether l can hold a lease at all: it and a quorum of its
// voters have the library.
func (s *sim) canLease(l *leasetest.Node) bool {
	if l.Lease() == nil {
		return false
	}
	return core.Voters(l.Conf()).CommittedIndex(withLibrary{s}) > 0
}

// withLibrary is a quorum.AckedIndexer: nodes with the library have acked 1.
type withLibrary struct{ s *sim }

// AckedIndex implements quorum.AckedIndexer.
func (w withLibrary) AckedIndex(id uint64) (quorum.Index, bool) {
	n := w.s.c.Node(id)
	return 1, n != nil && n.Lease() != nil
}

// serves asks for lease reads for a while and reports whether 99 in 100 were
// served.
func (s *sim) serves(l *leasetest.Node) bool {
	if !s.canLease(l) {
		s.advance(2 * s.w.D)
		return true
	}
	const asks = 200
	served := 0
	for range asks {
		s.advance(s.w.D / 50)
		if l.Valid() {
			served++
		}
	}
	return served*100 >= asks*99
}

// converge lets every member catch up, and compares them.
func (s *sim) converge() {
	s.advance(s.convergence())
	if s.w.RaftAlone { // with one append under way and one entry in each, members are slow
		s.c.RunUntil(s.recovery(), func() bool { return s.violated() || s.behind() == nil && s.furthest().Applied() >= s.raft.lastAcked() })
	}
	if s.violated() {
		return
	}
	for _, n := range s.c.Nodes() {
		s.compareState(n)
	}
	if n := s.behind(); n != nil {
		s.violatef("liveness", n.ID, "has applied %d of %d entries after healing", n.Applied(), s.raft.acknowledged())
	}
	s.checkAcks(s.furthest())
}

// behind returns a voter that lacks entries which were acknowledged some time ago, nil if there is
// none.
func (s *sim) behind() *leasetest.Node {
	voters, acked := s.furthest().Conf().GetVoters(), s.raft.acknowledged()
	for _, n := range s.c.Nodes() {
		if slices.Contains(voters, n.ID) && n.Applied() < acked {
			return n
		}
	}
	return nil
}

// furthest returns a node that has applied most.
func (s *sim) furthest() (f *leasetest.Node) {
	for _, n := range s.c.Nodes() {
		if f == nil || n.Applied() > f.Applied() {
			f = n
		}
	}
	return f
}

// lastAcked returns the newest index that was acknowledged, 0 if there is none.
func (o *raftOracle) lastAcked() (index uint64) {
	for _, a := range o.acks {
		index = max(index, a.index)
	}
	return index
}

// acknowledged returns the newest index that was acknowledged some time ago.
func (o *raftOracle) acknowledged() uint64 {
	const recent = 40
	if len(o.acks) <= recent {
		return 0
	}
	return o.acks[len(o.acks)-1-recent].index
}

// describe says what each node is doing.
func (s *sim) describe() string {
	var b strings.Builder
	for _, n := range s.c.Nodes() {
		c := n.Conf() // protobuf prints it with other spaces in each build
		fmt.Fprintf(&b, "\nnode %d up=%v paused=%v %v term=%d applied=%d voters=%v outgoing=%v learners=%v", n.ID, n.Up(), n.Paused(), n.Role(), n.Term(), n.Applied(),
			c.GetVoters(), c.GetVotersOutgoing(), slices.Concat(c.GetLearners(), c.GetLearnersNext()))
		if n.Lease() != nil {
			st := n.Lease().Info()
			fmt.Fprintf(&b, " lease=%v promise=%+v peers=%+v", st.Status, st.Promise, st.Peers)
		}
	}
	return b.String()
}

// operator starts and stops the nodes of a simulation once everything has healed, by the
// configurations that members have applied. It does not repair configurations that members
// have forgotten in a crash.
type operator struct {
	conf   *raftpb.ConfState // of the newest change
	before *raftpb.ConfState // before that change
	index  uint64            // of that change
	// applied are the members that have applied it, perhaps before a crash.
	applied map[uint64]bool
}

// sees records a configuration that n has applied. It ignores removed members, because they
// may know a configuration that the remaining members do not know yet.
func (o *operator) sees(n *leasetest.Node, index uint64) {
	if index < o.index || !slices.Contains(voters(n), n.ID) {
		return
	}
	if index > o.index {
		o.before, o.conf, o.index, o.applied = o.conf, n.Conf(), index, make(map[uint64]bool)
	}
	o.applied[n.ID] = true
}

// keeps reports whether a removed node should run on: if it was a member before the newest change, and no
// quorum has applied that change. A leader with the longest log may have forgotten in a crash that the
// change is committed, and then needs the vote of the node.
func (o *operator) keeps(id uint64) bool {
	if !slices.Contains(o.before.GetVoters(), id) && !slices.Contains(o.before.GetVotersOutgoing(), id) {
		return false
	}
	for _, half := range [][]uint64{o.conf.GetVoters(), o.conf.GetVotersOutgoing()} {
		n := 0
		for _, id := range half {
			if o.applied[id] {
				n++
			}
		}
		if len(half) > 0 && n <= len(half)/2 {
			return true
		}
	}
	return false
}

// wants reports whether a node should run: every member does.
func (o *operator) wants(id uint64) bool {
	return slices.Contains(slices.Concat(o.conf.GetVoters(), o.conf.GetVotersOutgoing(), o.conf.GetLearners(), o.conf.GetLearnersNext()), id)
}

// operate starts members and switches off other nodes, once each tick.
func (s *sim) operate() {
	for _, n := range s.c.Nodes() {
		switch {
		case s.operator.wants(n.ID):
			s.restart(n)
		case s.w.RaftAlone && s.operator.keeps(n.ID): // with the library it would learn what is committed
		case n.Up():
			s.trace.note(s.c.Now(), n.ID, "is switched off", "")
			n.Crash(0)
		}
	}
	s.c.After(s.w.Tick, func() {
		if !s.violated() {
			s.operate()
		}
	})
}

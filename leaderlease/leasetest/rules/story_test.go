package rules

import (
	"fmt"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The name of a directed test begins with its rule of docs/design.md. internal/mutants has, for
// each rule, changes of the source that remove it and make a test fail.

const ms = time.Millisecond

// The durations that leasetest's defaults lead to: ElectionTick 10, tick 100 ms.
const (
	duration = 900 * ms
	skew     = 180 * ms
	election = time.Second
)

// story is a cluster that checks every election: at the instant a node wins, no node of an older
// term may pass its own lease check.
type story struct {
	*leasetest.Cluster
	t        *testing.T
	overlaps []string
}

// begin starts a cluster with raft's election jitter pinned.
func begin(t *testing.T, opts leasetest.Options) *story {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	s := &story{Cluster: leasetest.New(opts), t: t}
	s.OnLeader = func(n *leasetest.Node, term uint64) {
		for _, o := range s.Nodes() {
			if o != n && o.Up() && o.Term() < term && o.Valid() {
				s.overlaps = append(s.overlaps, fmt.Sprintf(
					"%v: node %d won term %d while node %d holds the lease of term %d", s.Now(), n.ID, term, o.ID, o.Term()))
			}
		}
	}
	return s
}

// lead elects id under a valid lease.
func (s *story) lead(id uint64) *leasetest.Node {
	s.t.Helper()
	if !s.Elect(id) {
		s.t.Fatalf("Elect(%d) = false, want true", id)
	}
	return s.Node(id)
}

// isolate cuts id off from everyone.
func (s *story) isolate(id uint64) {
	for _, n := range s.Nodes() {
		if n.ID != id {
			s.Net.Split([]uint64{id}, []uint64{n.ID})
		}
	}
}

// electEarly elects id as early as possible with the votes of the helpers: they forget their leader, so
// that raft itself does not refuse. It fails the test if that takes more than 5 s, or if a lease
// was valid then.
func (s *story) electEarly(id uint64, helpers ...uint64) (took time.Duration) {
	s.t.Helper()
	start := s.Now()
	if !s.campaign(5*time.Second, id, helpers...) {
		s.t.Fatalf("node %d was not elected within 5 s", id)
	}
	s.disjoint()
	return s.Now() - start
}

// campaign is electEarly for at most limit, without a verdict.
func (s *story) campaign(limit time.Duration, id uint64, helpers ...uint64) bool {
	n := s.Node(id)
	for end := s.Now() + limit; s.Now() < end; {
		for _, h := range helpers {
			if s.Node(h).Role() == raft.StateFollower {
				s.Node(h).ForgetLeader()
			}
		}
		n.Campaign()
		s.Run(10 * ms)
		if n.Role() == raft.StateLeader {
			return true
		}
	}
	return false
}

// disjoint fails the test if any election was won while a lease was valid.
func (s *story) disjoint() {
	s.t.Helper()
	for _, o := range s.overlaps {
		s.t.Error(o)
	}
}

// wantStatus fails the test unless the node's lease check says want.
func (s *story) wantStatus(id uint64, want core.Status) {
	s.t.Helper()
	if _, got := s.Node(id).Lease().TryRead(); got != want {
		s.t.Errorf("%v: node %d: TryRead() = %v, want %v", s.Now(), id, got, want)
	}
}

// wantLeader fails the test unless id leads term under a valid lease.
func (s *story) wantLeader(id, term uint64) {
	s.t.Helper()
	n := s.Node(id)
	if n.Role() != raft.StateLeader || n.Term() != term || !n.Valid() {
		st := n.Lease().Info()
		s.t.Errorf("%v: node %d is %v of term %d, lease %v, want leader of term %d under a valid lease",
			s.Now(), id, n.Role(), n.Term(), st.Status, term)
	}
}

// write writes key at id and waits until it is applied there.
func (s *story) write(id, key uint64) (version uint64) {
	s.t.Helper()
	writes++
	s.Node(id).Write(key, writes, func(v uint64) { version = v })
	if !s.RunUntil(5*time.Second, func() bool { return version != 0 }) {
		s.t.Fatalf("%v: Write(%d) at node %d was not applied within 5 s", s.Now(), key, id)
	}
	return version
}

// writes numbers the writes of all stories.
var writes uint64

// answer is the result of a read.
type answer struct {
	done    bool
	version uint64
	path    leaderlease.Path
	err     error
}

// read starts a read.
func (s *story) read(id, key uint64) *answer {
	a := &answer{}
	s.Node(id).Read(key, func(v uint64, path leaderlease.Path, err error) {
		*a = answer{done: true, version: v, path: path, err: err}
	})
	return a
}

// served reports whether the read has been answered with a value.
func (a *answer) served() bool { return a.done && a.err == nil }

// bump makes a node learn of a higher term, as any message of that term does.
func (s *story) bump(id, from, term uint64) {
	s.t.Helper()
	s.hand(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: new(from), To: new(id), Term: new(term)})
}

// to matches messages of a type to a node.
func to(id uint64, t raftpb.MessageType) func(*raftpb.Message) bool {
	return func(m *raftpb.Message) bool { return m.GetType() == t && m.GetTo() == id }
}

// from matches messages of a type from a node.
func from(id uint64, t raftpb.MessageType) func(*raftpb.Message) bool {
	return func(m *raftpb.Message) bool { return m.GetType() == t && m.GetFrom() == id }
}

// hand gives m to its receiver past the network, cut lines or not.
func (s *story) hand(m *raftpb.Message) {
	s.t.Helper()
	n := s.Node(m.GetTo())
	if n.Lease() == nil || n.Lease().Incoming(m, leaderlease.ProcessID{}) {
		if err := n.Raw().Step(m); err != nil {
			s.t.Fatalf("Step(%v) = %v", m.GetType(), err)
		}
	}
	n.Kick()
}

// heldOf returns the newest held message that matches.
func (s *story) heldOf(match func(*raftpb.Message) bool) *raftpb.Message {
	s.t.Helper()
	for _, m := range slices.Backward(s.Net.Held()) {
		if match(m) {
			return m
		}
	}
	s.t.Fatal("no such message is held")
	return nil
}

// diskDelay returns the delay of a disk that is slow while *slow is set.
func diskDelay(may bool, slow *bool) func() time.Duration {
	return func() time.Duration {
		if may && *slow {
			return 700 * ms
		}
		return 0
	}
}

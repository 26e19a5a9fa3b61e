package rules

import (
	"context"
	"errors"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/fence"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// raft's first stale ReadIndex: a sole voter answers at once, although its
// commit index may be behind what it acknowledged before it crashed.
func TestReadSoleVoterBeforeOwnTermCommit(t *testing.T) {
	var s *story
	restarted, durable := false, 1000
	delay := func() time.Duration {
		durable--
		if durable < 0 || restarted && s.Node(1).Role() == raft.StateLeader {
			return 700 * ms
		}
		return 0
	}
	s = begin(t, leasetest.Options{Voters: ids(1), Learners: ids(2), Node: func(id uint64) leasetest.NodeOptions {
		if id == 1 {
			return leasetest.NodeOptions{Async: true, DiskDelay: delay}
		}
		return leasetest.NodeOptions{}
	}})
	s.lead(1)
	s.Run(200 * ms)
	s.isolate(2)
	// The entry reaches the disk; that it is committed does not.
	durable = 1
	written := s.write(1, 7)
	s.Node(1).Crash(0)
	restarted, durable = true, 1000
	s.Node(1).Restart()
	s.Net.Heal()
	if !s.RunUntil(5*time.Second, func() bool { return s.Node(1).Role() == raft.StateLeader }) {
		t.Fatal("node 1 did not lead again")
	}
	own := s.read(1, 7)
	s.Run(100 * ms)
	s.wantStatus(1, core.NoOwnTermCommit)
	forwarded := s.read(2, 7)
	s.Run(5 * time.Second)
	for id, a := range map[uint64]*answer{1: own, 2: forwarded} {
		if !a.served() || a.version != written {
			t.Errorf("node %d: Read(7) = %+v, want version %d", id, *a, written)
		}
	}
}

// An index is committed before it is applied. The read waits.
func TestReadWaitsUntilApplied(t *testing.T) {
	s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions {
		return leasetest.NodeOptions{Async: true, ApplyDelay: func() time.Duration { return 300 * ms }}
	}})
	s.lead(1)
	s.Run(time.Second)
	s.Node(1).Write(7, 1, func(uint64) {})
	s.Run(50 * ms)
	index, st := s.Node(1).Lease().TryRead()
	if st != core.Valid || index <= s.Node(1).Applied() {
		t.Fatalf("TryRead() = %d, %v, want valid and beyond the applied %d", index, st, s.Node(1).Applied())
	}
	var got leaderlease.ReadResult
	applied := uint64(0)
	s.Node(1).Lease().StartRead(context.Background(), leaderlease.ReadModeLease, func(r leaderlease.ReadResult, err error) { got, applied = r, s.Node(1).Applied() })
	s.Run(time.Second)
	if got.Index != index || applied < index {
		t.Errorf("StartRead() = index %d when %d was applied, want %d", got.Index, applied, index)
	}
}

// A renewal that comes late proves that the lease was held for a while, which
// is over before the read arrived. The read must not join it.
func TestReadJoinsOnlyWhatCoversIt(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(2050*ms - s.Now())
	s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
	s.Run(60 * ms)
	late := s.heldOf(to(1, raftpb.MsgHeartbeatResp))
	s.isolate(1)
	s.electEarly(2, 2, 3)
	written := s.write(2, 7)
	a := s.read(1, 7)
	before := s.Node(1).Lease().Stats().Renewals
	s.hand(late)
	if got := s.Node(1).Lease().Stats().Renewals; got != before+1 {
		t.Errorf("Stats().Renewals = %d, want %d: the schedule is off", got, before+1)
	}
	if a.served() && a.version < written {
		t.Errorf("Read(7) = %+v, want version %d or nothing", *a, written)
	}
}

// Reads that find no lease share one round, and are answered by the renewal
// that it brings.
func TestReadsShareOneRound(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(50 * ms)
	hook.Invalidate(s.Node(1).Lease())
	s.Run(ms)
	var reads []*answer
	for range 10 {
		reads = append(reads, s.read(1, 7))
	}
	s.Run(3 * ms)
	for _, a := range reads {
		if !a.served() || a.path != leaderlease.PathJoined {
			t.Fatalf("Read(7) = %+v, want joined", *a)
		}
	}
	if got := s.Node(1).Lease().Stats().Rounds; got != 1 {
		t.Errorf("Stats().Rounds = %d for 10 reads, want 1", got)
	}
}

// A leader answers forwarded reads from its lease, and only from that: nodes 1
// and 5 are cut off together, and the others have elected.
func TestReadForwardedNeedsALease(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1, 2, 3, 4, 5)})
	s.lead(1)
	s.Run(2050*ms - s.Now())
	if a := s.read(5, 7); true {
		s.Run(3 * ms)
		if !a.served() || a.path != leaderlease.PathForwarded || s.Node(1).Lease().Stats().Answered != 1 {
			t.Errorf("Read(7) at node 5 = %+v, want forwarded and answered from the lease", *a)
		}
	}
	s.Net.Split(ids(1, 5), ids(2, 3, 4))
	s.electEarly(2, 2, 3, 4)
	written := s.write(2, 7)
	a := s.read(5, 7)
	s.Run(500 * ms)
	if s.Node(1).Role() != raft.StateLeader {
		t.Error("node 1 leads no more: the schedule is off")
	}
	if a.served() && a.version < written {
		t.Errorf("Read(7) at node 5 = %+v, want version %d or nothing", *a, written)
	}
}

// The answer to a request of an earlier start must not confirm the first read
// of this one.
func TestReadAnswerOfAnEarlierStart(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = func(m *raftpb.Message) bool {
		return m.GetTo() == 3 && (m.GetType() == raftpb.MsgReadIndexResp || m.GetType() == raftpb.MsgApp)
	}
	s.read(3, 7)
	s.Run(5 * ms)
	late := s.heldOf(to(3, raftpb.MsgReadIndexResp))
	s.Node(3).Crash(0)
	written := s.write(1, 7)
	s.Node(3).Restart()
	s.Run(150 * ms) // it learns its leader from a heartbeat
	a := s.read(3, 7)
	s.Run(5 * ms)
	s.hand(late)
	s.Run(5 * ms)
	if a.done {
		t.Errorf("Read(7) = %+v on the answer to an earlier start, want none", *a)
	}
	s.Net.Hold = nil
	s.Net.Release(nil)
	s.Run(election)
	if !a.served() || a.version != written {
		t.Errorf("Read(7) = %+v, want version %d", *a, written)
	}
}

// A read that waits when leadership is lost fails at once, and says why.
func TestReadFailsFastWhenLeadershipMoves(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.isolate(1)
	hook.Invalidate(s.Node(1).Lease())
	a := s.read(1, 7)
	s.Run(20 * ms)
	if a.done {
		t.Fatalf("Read(7) = %+v without a quorum, want none", *a)
	}
	s.bump(1, 2, 5)
	var refused *leaderlease.NoLeaseError
	if !a.done || !errors.As(a.err, &refused) || refused.Status != core.NotLeader {
		t.Errorf("Read(7) = %+v, want not_leader", *a)
	}
}

// The clock of leader 1 stands still, so its lease never ends, while a majority elects another
// leader. Node 2 still follows node 1, and a lease read there is stale, because assumption A2 does
// not hold. A ReadIndex read is not answered, since no round of node 1 reaches a majority.
func TestReadIndexOnAFollowerTrustsNoClock(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1, 2, 3, 4, 5)})
	s.lead(1)
	old := s.write(1, 7)
	s.Run(100 * ms)
	s.Node(1).Clock.Stop()
	s.Net.Split(ids(1, 2), ids(3, 4, 5))
	if !s.campaign(5*time.Second, 3, 4, 5) {
		t.Fatal("node 3 was not elected")
	}
	newest := s.write(3, 7)

	plain := s.read(2, 7)
	s.Run(100 * ms)
	if !plain.served() || plain.version != old {
		t.Fatalf("Read() on node 2 = %+v, want version %d by a lease that should have ended, or this test shows nothing", plain, old)
	}
	round := &answer{}
	s.Node(2).ReadIndex(7, func(v uint64, path leaderlease.Path, err error) { *round = answer{true, v, path, err} })
	s.Run(100 * ms)
	if round.served() {
		t.Errorf("ReadIndex() on node 2 = version %d by %v, but %d was written elsewhere", round.version, round.path, newest)
	}
	s.Node(1).Clock.Start()
	s.Net.Heal()
	s.Run(3 * election)
	if !round.done || round.served() && round.version < newest {
		t.Errorf("ReadIndex() on node 2 = %+v after healing, want version %d or an error", round, newest)
	}
}

// Tokens rise strictly from holder to holder, over elections, transfers and
// restarts, and never fall while one node holds on.
func TestTokensRiseOverFailOvers(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 7)
	c := leasetest.New(leasetest.Options{})
	var newest fence.Token
	holders := 0
	take := func() {
		t.Helper()
		n := c.Leader()
		for range 3 {
			n.Write(1, uint64(c.Now())+1, func(uint64) {})
			c.Run(50 * time.Millisecond)
			token, err := n.Lease().Token()
			if err != nil || !newest.Less(token) {
				t.Fatalf("Token() of node %d = %v, %v, want more than %v", n.ID, token, err, newest)
			}
			newest = token
		}
		holders++
	}
	lead := func() bool {
		return c.RunUntil(time.Minute, func() bool { n := c.Leader(); return n != nil && n.Valid() })
	}
	for round := range 12 {
		if !lead() {
			t.Fatalf("round %d: no leader with a lease", round)
		}
		take()
		old := c.Leader()
		switch round % 3 {
		case 0:
			old.Transfer(old.ID%3 + 1)
			c.Run(time.Second)
		case 1:
			old.Crash(0)
			c.Run(5 * time.Second)
			old.Restart()
		default:
			c.Net.Split([]uint64{old.ID}, []uint64{old.ID%3 + 1, (old.ID+1)%3 + 1})
			c.Run(10 * time.Second)
			if token, err := old.Lease().Token(); err == nil {
				t.Fatalf("Token() of a leader that was cut off = %v, want none", token)
			}
			c.Net.Heal()
		}
	}
	if holders != 12 {
		t.Errorf("%d holders took tokens, want 12", holders)
	}
}

// Work begun under one node's lease has ended before another node has one.
func TestWorkEndsBeforeTheNextHolderBegins(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 3)
	c := leasetest.New(leasetest.Options{})
	if !c.Elect(1) {
		t.Fatal("Elect(1) = false")
	}
	ctx, stop, err := c.Node(1).Lease().Context(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c.Node(1).Transfer(2)
	gained := false
	c.OnLeader = func(n *leasetest.Node, _ uint64) {
		gained = true
		if ctx.Err() == nil {
			t.Errorf("node %d leads while work of node 1 goes on", n.ID)
		}
	}
	if !c.RunUntil(time.Minute, func() bool { return c.Node(2).Valid() }) || !gained {
		t.Fatal("leadership was not transferred")
	}
	events, stopWatch := c.Node(1).Lease().Watch()
	defer stopWatch()
	if e := <-events; e.Held {
		t.Errorf("Watch() of node 1 = %+v, want the lease lost", e)
	}
}

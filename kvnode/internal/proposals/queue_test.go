package proposals

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// fakeRaft takes messages until room is used up.
type fakeRaft struct {
	state    State
	room     int // messages that it takes
	err      error
	sendable bool
	taken    []*raftpb.Message
	ready    func() // the next HandleReadys
}

func (r *fakeRaft) State() State { return r.state }

func (r *fakeRaft) HandleReadys() {
	if r.ready != nil {
		r.ready()
	}
}

func (r *fakeRaft) Step(m *raftpb.Message) error {
	switch {
	case r.err != nil:
		return r.err
	case r.room == 0:
		return raft.ErrProposalDropped
	}
	r.room--
	r.taken = append(r.taken, m)
	return nil
}

func (r *fakeRaft) CanSend(uint64, *raftpb.Message) bool { return r.sendable }

// senders returns the senders of the messages that raft has taken.
func (r *fakeRaft) senders() (from []uint64) {
	for _, m := range r.taken {
		from = append(from, m.GetFrom())
	}
	return from
}

const self = 1

// newQueue returns the Queue of a leader with a raft that takes room messages.
func newQueue(room int) (*Queue, *fakeRaft) {
	r := &fakeRaft{state: State{Leads: true, Leader: self, Term: 7}, room: room, sendable: true}
	return NewQueue(self, r, newPending(1000, 1<<30), NewQuota(1<<20)), r
}

// submit adds proposals of that size with IDs from first on.
func submit(q *Queue, first uint64, count, bytes int) (all []*waiter) {
	for id := range uint64(count) {
		p := sized(first+id, bytes)
		w, _ := q.pending.add(p)
		q.pending.submitted.Push(p)
		all = append(all, w)
	}
	return all
}

// forward forwards a message of that size.
func forward(t *testing.T, q *Queue, from uint64, bytes int) {
	t.Helper()
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(from), Entries: []*raftpb.Entry{{Data: make([]byte, bytes)}}}
	if !q.quota.Acquire(m, nil) {
		t.Fatal("Acquire() = false")
	}
	q.AddForwarded(m)
}

func wantSenders(t *testing.T, r *fakeRaft, want ...uint64) {
	t.Helper()
	if got := r.senders(); !slices.Equal(got, want) {
		t.Errorf("raft takes messages from %v, want %v", got, want)
	}
}

// A busy member does not keep others out: raft takes one message of each in turn, in order of arrival.
func TestMembersTakeTurns(t *testing.T) {
	q, r := newQueue(0)
	for range 3 {
		forward(t, q, 2, 10)
	}
	submit(q, 1, 2, maxMessageBytes) // a message each
	q.Offer()
	forward(t, q, 3, 10)
	wantSenders(t, r)
	r.room = 3
	q.Offer()
	wantSenders(t, r) // blocked, as nothing has changed
	q.Unblock()
	q.Offer()
	wantSenders(t, r, 2, self, 3)
	r.room = 10
	q.Unblock()
	q.Offer()
	wantSenders(t, r, 2, self, 3, 2, self, 2)
	if n := q.Len(); n != 0 || len(q.turns) != 0 || len(q.quota.mu.used) != 0 {
		t.Errorf("%d messages, turns of %v and quotas of %v are left, want none", n, q.turns, q.quota.mu.used)
	}
}

// A message that arrives at an empty Queue is proposed at once. With others in the Queue it waits behind them.
func TestForwardDoesNotOvertake(t *testing.T) {
	q, r := newQueue(1)
	forward(t, q, 2, 10)
	wantSenders(t, r, 2)
	forward(t, q, 2, 10) // dropped by raft
	r.room = 1
	forward(t, q, 3, 10)
	wantSenders(t, r, 2)
	q.Offer()
	wantSenders(t, r, 2, 2)
}

// A member that does not lead passes on what followers forward, and drops what it holds.
func TestQueueOfAFormerLeader(t *testing.T) {
	q, r := newQueue(0)
	forward(t, q, 2, 10)
	waiters := submit(q, 1, 1, 10)
	q.Offer()
	r.state.Leads = false
	q.Offer()
	if q.Len() != 1 || len(q.quota.mu.used) != 0 {
		t.Errorf("a former leader holds %d proposals and quotas of %v, want its own proposal only", q.Len(), q.quota.mu.used)
	}
	r.room, r.state.Leader = 2, 3
	q.Unblock()
	q.Offer()
	forward(t, q, 2, 10)
	wantSenders(t, r, self, 2)
	if len(q.quota.mu.used) != 0 || !waits(waiters[0]) {
		t.Error("a message that was passed on uses quota, or this member's proposal has an outcome")
	}
}

// A follower keeps proposals that the connection to its leader does not take.
func TestFollowerWithoutAConnection(t *testing.T) {
	q, r := newQueue(10)
	r.state = State{Leader: 2, Term: 7}
	r.sendable = false
	submit(q, 1, 1, 10)
	q.Offer()
	wantSenders(t, r)
	r.sendable = true
	q.Tick()
	q.Offer()
	wantSenders(t, r, self)
}

// A leader waits until a batch is committed before it proposes the next one, for maxHold at most.
func TestBatchesAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := newQueue(10)
		submit(q, 1, 3, 10)
		q.Offer()
		if len(r.taken) != 1 || len(r.taken[0].GetEntries()) != 3 {
			t.Fatalf("raft takes %v, want one message with 3 entries", r.taken)
		}
		r.state.Last = 3
		submit(q, 4, 1, 10)
		forward(t, q, 2, 10) // is not held
		q.Offer()
		wantSenders(t, r, self, 2)
		r.state.Commit = 3
		q.Offer()
		wantSenders(t, r, self, 2, self)
		r.state.Last = 4
		submit(q, 5, 1, 10)
		time.Sleep(maxHold)
		q.Offer()
		wantSenders(t, r, self, 2, self)
		time.Sleep(time.Nanosecond)
		q.Offer()
		wantSenders(t, r, self, 2, self, self)
	})
}

// Abandoned proposals are not proposed, and do not fill the Queue.
func TestAbandonedProposals(t *testing.T) {
	q, r := newQueue(0)
	submit(q, 1, 4, 10)
	q.Offer()
	q.pending.remove(1)
	q.pending.remove(3)
	r.room = 1
	q.Unblock()
	q.Offer()
	if len(r.taken) != 1 || len(r.taken[0].GetEntries()) != 2 {
		t.Errorf("raft takes %v, want one message with 2 entries", r.taken)
	}
	submit(q, 5, 4, 10)
	q.Offer()
	for id := range uint64(4) {
		q.pending.remove(5 + id)
	}
	q.Tick()
	if n := q.Len(); n != 0 {
		t.Errorf("%d abandoned proposals are kept, want none", n)
	}
	q.Offer()
}

// After a drop the proposals that still have clients stay first, in order, and are not in doubt.
func TestDroppedProposalsStayFirst(t *testing.T) {
	q, r := newQueue(0)
	waiters := submit(q, 1, 3, 10)
	q.pending.remove(2)
	q.Offer()
	q.pending.FailProposed()
	if !waits(waiters[0]) || !waits(waiters[2]) {
		t.Error("a dropped proposal fails with the leader, want it to wait")
	}
	submit(q, 4, 1, 10)
	q.Unblock()
	q.Offer()
	if got, want := ids(q.own), []uint64{1, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("the Queue holds %v, want %v", got, want)
	}
	r.room = 1
	q.Unblock()
	q.Offer()
	if q.Len() != 0 {
		t.Errorf("%d proposals are left, want none", q.Len())
	}
}

// A proposal that raft refuses for good fails.
func TestRefusedProposalsFail(t *testing.T) {
	q, r := newQueue(0)
	r.err = errors.New("refused")
	w := submit(q, 1, 1, 10)[0]
	q.Offer()
	wantErr(t, "a proposal that raft refuses", w, r.err)
}

// Each attempt requires the term in which it is proposed.
func TestOfferSetsTheRequiredTerm(t *testing.T) {
	q, r := newQueue(1)
	data, err := (&store.Command{ID: 1, RequiredTerm: 6}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := proposal{id: 1, entry: &raftpb.Entry{Data: data}, repeatable: true, requiredTerm: 6}
	w, _ := q.pending.add(p)
	q.pending.submitted.Push(p)
	q.Offer()
	c, err := store.DecodeCommand(r.taken[0].GetEntries()[0].GetData())
	if err != nil || c.RequiredTerm != 7 || w.requiredTerm != 7 {
		t.Errorf("raft takes %+v, %v, and the waiter has required term %d, want 7", c, err, w.requiredTerm)
	}
}

func TestFirstMessage(t *testing.T) {
	change := proposal{entry: &raftpb.Entry{Type: raftpb.EntryConfChange.Enum()}}
	for _, tc := range []struct {
		name string
		qs   []proposal
		want int
	}{
		{"one that is too large", []proposal{sized(1, 2*maxMessageBytes), sized(2, 1)}, 1},
		{"as many as fit", []proposal{sized(1, maxMessageBytes-1), sized(2, 1), sized(3, 1)}, 2},
		{"a change goes alone", []proposal{change, sized(2, 1)}, 1},
		{"a change ends a message", []proposal{sized(1, 1), change}, 1},
	} {
		if got := proposalsPerMessage(tc.qs); got != tc.want {
			t.Errorf("%s: proposalsPerMessage() = %d, want %d", tc.name, got, tc.want)
		}
	}
}

// A configuration change waits until the whole log is applied, and nothing overtakes it.
func TestChangeWaitsForTheLog(t *testing.T) {
	q, r := newQueue(10)
	r.state.Last, r.state.Commit = 5, 5
	entry, err := membership.NewChangeEntry(raftpb.ConfChangeRemoveNode, &membership.ChangeContext{Member: store.Member{ID: 3}})
	if err != nil {
		t.Fatal(err)
	}
	change := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(uint64(2)), Entries: []*raftpb.Entry{entry}}
	q.quota.Acquire(change, nil)
	q.AddForwarded(change)
	forward(t, q, 2, 10)
	q.Offer()
	wantSenders(t, r)
	r.ready = func() { r.state.Applied = 5 }
	q.Unblock()
	q.Offer()
	if wantSenders(t, r, 2, 2); r.taken[0] != change {
		t.Error("another proposal overtakes a configuration change")
	}
}

// Only the leader raises the cluster version.
func TestFormatChangeOnAFollower(t *testing.T) {
	q, r := newQueue(10)
	r.state.Leads = false
	entry, err := membership.NewClusterVersionEntry(&membership.ChangeContext{ClusterVersion: store.ClusterVersionNewest})
	if err != nil {
		t.Fatal(err)
	}
	p := proposal{id: 1, entry: entry}
	w, _ := q.pending.add(p)
	q.pending.submitted.Push(p)
	q.Offer()
	wantErr(t, "a cluster version change on a follower", w, ErrNotLeader)
}

// A follower that has used up its quota waits until the leader releases some, and others do not.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQuota(100)
		message := func(from uint64, bytes int) *raftpb.Message {
			return &raftpb.Message{From: new(from), Entries: []*raftpb.Entry{{Data: make([]byte, bytes)}}}
		}
		stopping := make(chan struct{})
		got := make(chan bool, 2)
		acquire := func(m *raftpb.Message) {
			go func() { got <- q.Acquire(m, stopping) }()
			synctest.Wait()
		}
		acquire(message(2, 1000)) // larger than the quota, which is empty
		acquire(message(3, 60))
		if len(got) != 2 || !<-got || !<-got {
			t.Fatal("Acquire() with an empty quota = false")
		}
		acquire(message(3, 41))
		if len(got) != 0 {
			t.Fatal("Acquire() of 101 bytes of 100 does not wait")
		}
		q.release(2, 1000)
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("Acquire() returns when another follower's quota is released")
		}
		q.release(3, 60)
		if !<-got {
			t.Error("Acquire() after a release = false, want true")
		}
		acquire(message(3, 100))
		close(stopping)
		if <-got {
			t.Error("Acquire() when the member stops = true, want false")
		}
		q.release(3, 41)
		for range maxQuotaMessages {
			q.tryAcquire(4, 0)
		}
		if q.tryAcquire(4, 0) == nil {
			t.Errorf("Acquire() of %d empty messages does not wait", maxQuotaMessages+1)
		}
		if len(q.mu.used) != 1 {
			t.Errorf("the quotas of %d followers are kept, want one", len(q.mu.used))
		}
	})
}

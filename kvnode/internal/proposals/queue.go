package proposals

import (
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

const (
	// maxMessageBytes bounds the entries of one message to raft, which raft takes or drops as a whole. Larger
	// messages wait longer for space below raft's limit of uncommitted bytes. Smaller ones cost more steps.
	maxMessageBytes = 256 << 10

	// maxHold bounds how long a batch that is not committed delays the next one. It matters where the
	// quorum is far away or slow. A larger value adds as much to the latency of a write; a smaller one makes
	// small batches on a busy member.
	maxHold = 10 * time.Millisecond
)

// Raft is the raft loop, as its Queue uses it.
type Raft interface {
	// State describes raft as of the newest Ready.
	State() State
	// HandleReadys handles Readys until raft has none, so that State is up to date.
	HandleReadys()
	// Step hands m to raft.
	Step(m *raftpb.Message) error
	// CanSend reports whether the connection to a member takes m now.
	CanSend(to uint64, m *raftpb.Message) bool
}

// State is the part of raft's state that a Queue needs.
type State struct {
	Leads        bool
	Leader, Term uint64 // Leader is raft.None if no leader is known
	// Last is the last index of the log, Commit the commit index, and Applied what raft has been told is
	// applied.
	Last, Commit, Applied uint64
}

// Queue holds proposals that raft has not taken yet: this member's own and, on a leader, those that followers
// have forwarded. Raft would drop them, and their clients would not hear of it. The raft loop owns the Queue.
type Queue struct {
	self    uint64
	raft    Raft
	pending *Pending
	quota   *Quota

	own []proposal // in order of arrival
	// forwarded are the messages of each follower, in order of arrival. Quota bounds them.
	forwarded map[uint64][]*raftpb.Message
	// turns are the members with something in the Queue, the next one first. Raft takes one message of each
	// in turn, or one busy member would keep the others out.
	turns []uint64
	// blocked means that raft has dropped a proposal, and nothing has changed since.
	blocked   bool
	offeredAt time.Time  // when raft last took this member's proposals
	spare     []proposal // the array for the next drain of pending.submitted
}

// NewQueue returns an empty Queue of member self.
func NewQueue(self uint64, r Raft, pending *Pending, quota *Quota) *Queue {
	return &Queue{self: self, raft: r, pending: pending, quota: quota, forwarded: make(map[uint64][]*raftpb.Message)}
}

// Forward takes a follower's message, which Quota has acquired. A member that does not lead passes it on to the
// leader. Without a leader raft drops it: the follower proposes it again in a later term, or fails it.
func (q *Queue) Forward(m *raftpb.Message) {
	from, size := m.GetFrom(), payload(m)
	// Raft may take m at once only if the Queue is empty, or m would overtake others. A configuration change
	// always waits in the Queue, as propose has a condition for it.
	leads := q.raft.State().Leads
	wait := leads && (len(q.turns) > 0 || hasConfChange(m))
	if !wait {
		err := q.raft.Step(m)
		wait = leads && errors.Is(err, raft.ErrProposalDropped)
	}
	if wait {
		q.forwarded[from] = append(q.forwarded[from], m)
		q.addTurn(from)
		return
	}
	q.quota.release(from, size)
}

// Drop releases the quota of a follower's message that is not proposed.
func (q *Queue) Drop(m *raftpb.Message) { q.quota.release(m.GetFrom(), payload(m)) }

// addTurn gives a member a turn, behind the others.
func (q *Queue) addTurn(id uint64) {
	if !slices.Contains(q.turns, id) {
		q.turns = append(q.turns, id)
	}
}

// Unblock makes the next Offer try again, because raft may take proposals that it has dropped before.
func (q *Queue) Unblock() { q.blocked = false }

// Tick deletes proposals that their clients have abandoned, so that without a leader the Queue stays
// bounded. It unblocks the Queue, as raft does not report each change: a peer has connected, or a transfer
// has ended.
func (q *Queue) Tick() {
	q.own = q.pending.deleteAbandoned(q.own)
	q.Unblock()
	if q.raft.State().Leader == raft.None {
		q.pending.tickLeaderless()
	}
}

// Len returns the number of this member's proposals, including those that the loop has not drained yet, plus
// the number of forwarded messages. Tests use it.
func (q *Queue) Len() int {
	n := q.pending.submitted.Len() + len(q.own)
	for _, messages := range q.forwarded {
		n += len(messages)
	}
	return n
}

// Offer takes what clients have submitted and offers raft what the Queue holds, until raft takes no more: one
// message of each member in turn. While this member holds its own proposals back (mayOfferOwn), they stay in
// the mailbox, where clients that give up delete them, and its turn passes.
func (q *Queue) Offer() {
	s := q.raft.State()
	own := q.mayOfferOwn(s)
	if own {
		q.drainSubmitted()
	}
	if !s.Leads {
		q.dropForwarded()
	}
	if q.blocked {
		return
	}
	// passed counts turns in a row without an offer. When all turns have passed, nothing is left to offer.
	for passed := 0; passed < len(q.turns); {
		id := q.turns[0]
		held := id == q.self && !own
		if !held && !q.offerNext(id) {
			q.blocked = true // id keeps its turn
			return
		}
		q.turns = q.turns[1:]
		if held {
			passed++
		} else {
			passed = 0
		}
		if held || q.has(id) {
			q.turns = append(q.turns, id)
		}
	}
}

// mayOfferOwn makes a leader wait until one batch is committed before it proposes the next one, for maxHold
// at most. Proposals that arrive meanwhile share the fixed costs of messages, syncs and answers, and would
// have waited for the disks anyway. A single write does not wait. A follower does not hold proposals back, as
// its leader batches them.
func (q *Queue) mayOfferOwn(s State) bool {
	return !s.Leads || s.Commit >= s.Last || time.Since(q.offeredAt) > maxHold
}

// drainSubmitted moves submitted proposals behind the own ones.
//
// Two arrays take turns, so that a busy member allocates none: clients append to the one in the mailbox, and
// own is a part of the other. The mailbox gets that array back only when own is empty.
func (q *Queue) drainSubmitted() {
	if len(q.own) > 0 {
		q.own = append(q.own, q.pending.submitted.Drain(nil)...)
		q.spare = nil // own may be a part of it
		return
	}
	q.spare = q.pending.submitted.Drain(q.spare)
	if q.own = q.spare; len(q.own) > 0 {
		q.addTurn(q.self)
	}
}

// dropForwarded drops all forwarded messages once this member does not lead. In another term they would have
// no effect. The followers propose them again (Pending.TermReached).
func (q *Queue) dropForwarded() {
	if len(q.forwarded) == 0 {
		return
	}
	for _, messages := range q.forwarded {
		for _, m := range messages {
			q.Drop(m)
		}
	}
	clear(q.forwarded)
	q.turns = slices.DeleteFunc(q.turns, func(id uint64) bool { return id != q.self })
}

// has reports whether the Queue has something of a member.
func (q *Queue) has(id uint64) bool {
	if id == q.self {
		return len(q.own) > 0
	}
	return len(q.forwarded[id]) > 0
}

// offerNext offers raft the next message of a member. It returns false if raft has dropped it, and the message
// stays first in its line. A message that raft has taken, or refused for good, is removed.
func (q *Queue) offerNext(id uint64) bool {
	if id == q.self {
		return q.offerOwn()
	}
	m := q.forwarded[id][0]
	size := payload(m) // before the call: raft may replace entries
	if errors.Is(q.propose(m), raft.ErrProposalDropped) {
		return false
	}
	q.quota.release(id, size)
	if q.forwarded[id] = q.forwarded[id][1:]; len(q.forwarded[id]) == 0 {
		delete(q.forwarded, id)
	}
	return true
}

// offerOwn is offerNext for this member. It leaves out abandoned proposals.
func (q *Queue) offerOwn() bool {
	if len(q.own) == 0 {
		return true // all clients have given up
	}
	k := firstMessage(q.own)
	term := q.raft.State().Term
	for i := range k {
		q.own[i] = q.own[i].forTerm(term)
	}
	offered := q.pending.markProposed(q.own[:k])
	if len(offered) > 0 {
		err := q.propose(newMessage(q.self, offered))
		if errors.Is(err, raft.ErrProposalDropped) {
			// They stay first. Abandoned ones before them are gone.
			q.pending.unmarkProposed(offered)
			gone := k - len(offered)
			copy(q.own[gone:k], offered)
			q.own = q.own[gone:]
			return false
		}
		q.offeredAt = time.Now()
		if err != nil {
			for _, o := range offered {
				q.pending.failRefused(o.id, err)
			}
		}
	}
	q.own = q.own[k:]
	return true
}

// firstMessage returns how many of qs to propose in one message: at least one, and no more than
// maxMessageBytes. A configuration change has a message of its own, because it waits until all entries
// before it are applied (propose), and would delay the other proposals in its message.
func firstMessage(qs []proposal) int {
	if isConfChange(qs[0].entry) {
		return 1
	}
	k, bytes := 0, 0
	for _, q := range qs {
		bytes += len(q.entry.GetData())
		if isConfChange(q.entry) || k > 0 && bytes > maxMessageBytes {
			break
		}
		k++
	}
	return k
}

// newMessage returns a message without a term: raft takes a proposal in its present term.
func newMessage(from uint64, qs []proposal) *raftpb.Message {
	entries := make([]*raftpb.Entry, len(qs))
	for i, q := range qs {
		entries[i] = q.entry
	}
	return &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(from), Entries: entries}
}

// propose steps a proposal. After raft.ErrProposalDropped raft has not taken it: there is no leader, or no
// connection to it, leadership is being transferred, or too much is uncommitted.
func (q *Queue) propose(m *raftpb.Message) error {
	s := q.raft.State()
	if !s.Leads {
		if m.GetEntries()[0].GetType() == raftpb.EntryConfChangeV2 {
			return ErrNotLeader // the leader raises the cluster version itself
		}
		// Raft would forward m and report success, and the connection would drop it: the client would wait
		// for the request timeout.
		if s.Leader != raft.None && !q.raft.CanSend(s.Leader, m) {
			return raft.ErrProposalDropped
		}
		err := q.raft.Step(m)
		q.raft.HandleReadys() // sends m, so that CanSend counts it
		return err
	}
	if hasConfChange(m) {
		// A configuration change waits until the whole log is applied, and nothing overtakes it. With
		// another change before it that is not applied, raft replaces it by an empty entry. Raft also takes
		// a change for pending that it has dropped because too much was uncommitted, and replaces the next
		// one (raft.go, stepLeader).
		q.raft.HandleReadys()
		if s := q.raft.State(); s.Applied < s.Last {
			return raft.ErrProposalDropped
		}
	}
	return q.raft.Step(m)
}

func isConfChange(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal }

func hasConfChange(m *raftpb.Message) bool { return slices.ContainsFunc(m.GetEntries(), isConfChange) }

// maxQuotaMessages bounds a follower's messages, because entries without data cost memory, too.
const maxQuotaMessages = 1024

// Quota limits the memory held by proposals that followers have forwarded and that raft has not taken yet, for
// each follower. When a follower's quota is used up, its stream is not read, so its proposals wait at the
// follower. If the follower is elected, its stream must carry entries: the quota is free by then, because a
// member that does not lead drops forwarded proposals (Queue.Offer).
//
// Goroutines that read streams call Acquire. The raft loop releases each acquired message exactly once, by
// Queue.Forward or Queue.Drop, or the follower's quota would leak.
type Quota struct {
	maxBytes int // immutable: of one follower
	mu       struct {
		sync.Mutex
		used map[uint64]*usage // by follower; deleted when empty, as peers may connect under any number of IDs
	}
}

// usage is the quota that one follower uses. Quota.mu guards it.
type usage struct {
	messages, bytes int
	released        chan struct{} // closed by the next release; nil if no goroutine waits
}

// NewQuota returns a Quota of maxBytes for each follower.
func NewQuota(maxBytes int) *Quota {
	q := &Quota{maxBytes: maxBytes}
	q.mu.used = make(map[uint64]*usage)
	return q
}

// Acquire waits until the sender of m has quota for it. It returns false if stopping is closed first.
func (q *Quota) Acquire(m *raftpb.Message, stopping <-chan struct{}) bool {
	size := payload(m)
	for {
		released := q.tryAcquire(m.GetFrom(), size)
		if released == nil {
			return true
		}
		select {
		case <-released:
		case <-stopping:
			return false
		}
	}
}

// tryAcquire returns nil if there is quota, and else a channel that the next release closes. An empty quota
// takes any message: one larger than maxBytes would block its stream for ever.
func (q *Quota) tryAcquire(from uint64, size int) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.mu.used[from]
	if u == nil {
		u = &usage{}
		q.mu.used[from] = u
	}
	if u.messages == 0 || u.messages < maxQuotaMessages && u.bytes+size <= q.maxBytes {
		u.messages++
		u.bytes += size
		return nil
	}
	if u.released == nil {
		u.released = make(chan struct{})
	}
	return u.released
}

func (q *Quota) release(from uint64, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.mu.used[from]
	u.messages--
	u.bytes -= size
	if u.released != nil {
		close(u.released)
		u.released = nil
	}
	if u.messages == 0 {
		delete(q.mu.used, from)
	}
}

// payload is the size of m as Quota counts it.
func payload(m *raftpb.Message) (bytes int) {
	for _, e := range m.GetEntries() {
		bytes += len(e.GetData())
	}
	return bytes
}

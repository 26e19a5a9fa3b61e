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
	// maxMessageBytes limits the entries of one message to raft, which raft takes or drops as a whole. Larger
	// messages wait longer until they fit under raft's limit of uncommitted bytes. Smaller ones cost more steps.
	maxMessageBytes = 256 << 10

	// maxHold is the longest time for which a batch that is not committed yet delays the next one (mayOfferOwn). It
	// matters if the quorum is far away or slow. A larger value adds as much to the latency of a write; a smaller one
	// makes small batches on a busy member.
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
	// turns are the members with something in the Queue, the next one first. Raft is offered one message of each in
	// turn, so that one busy member does not keep the others out.
	turns []uint64
	// blocked means that raft has dropped a proposal, and no event since then lets it take one (Unblock).
	blocked   bool
	offeredAt time.Time  // when raft last took this member's proposals
	spare     []proposal // the array for the next drain of pending.submitted
}

// NewQueue returns an empty Queue of member self.
func NewQueue(self uint64, r Raft, pending *Pending, quota *Quota) *Queue {
	return &Queue{self: self, raft: r, pending: pending, quota: quota, forwarded: make(map[uint64][]*raftpb.Message)}
}

// AddForwarded takes a follower's message, for which Quota was acquired. If this member does not lead, raft passes the
// message on to the leader, or drops it if there is none. The follower proposes it again in a later term, or fails it.
func (q *Queue) AddForwarded(m *raftpb.Message) {
	from, size := m.GetFrom(), payload(m)
	// A leader's raft gets m at once only if the Queue is empty. Otherwise m would overtake others. A configuration
	// change always goes through the Queue, because propose checks a condition for it.
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

// addTurn appends a member to turns unless it has a turn.
func (q *Queue) addTurn(id uint64) {
	if !slices.Contains(q.turns, id) {
		q.turns = append(q.turns, id)
	}
}

// Unblock makes the next Offer try again. It is called when raft may take proposals that it has dropped before.
func (q *Queue) Unblock() { q.blocked = false }

// Tick deletes proposals that their clients have abandoned, so that the Queue stays bounded without a leader. It also
// unblocks the Queue, because some changes are not reported to it, for example that a peer has connected or that a
// transfer has ended.
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

// Offer takes what clients have submitted, and offers raft one message of each member in turn, until the Queue is
// empty or raft takes no more. While this member holds its own proposals back (mayOfferOwn), it skips its turn, and
// its new proposals stay in the mailbox.
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
	// passed counts skipped turns in a row. When all turns were skipped, nothing is left to offer.
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

// mayOfferOwn reports whether this member's own proposals may be offered now. A leader holds them back until its
// log is committed, for maxHold at most, so that proposals that arrive meanwhile share the fixed costs of messages,
// syncs and answers. A follower does not hold proposals back, because its leader batches them.
func (q *Queue) mayOfferOwn(s State) bool {
	return !s.Leads || s.Commit >= s.Last || time.Since(q.offeredAt) > maxHold
}

// drainSubmitted appends the submitted proposals to own.
//
// Two arrays take turns, so that a busy member allocates none: clients append to that of the mailbox, and own is a
// slice of the other (spare). They are swapped when own is empty.
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

// dropForwarded drops all forwarded messages once this member does not lead. Those with a required term would
// have no effect in another term, and the followers propose them again (Pending.TermReached).
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

// offerNext offers raft the next message of a member. If raft drops the message, it stays the member's next one, and
// offerNext returns false. A message that raft has taken, or refused for good, is removed.
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
	k := proposalsPerMessage(q.own)
	term := q.raft.State().Term
	for i := range k {
		q.own[i] = q.own[i].forTerm(term)
	}
	offered := q.pending.markProposed(q.own[:k])
	if len(offered) > 0 {
		err := q.propose(newMessage(q.self, offered))
		if errors.Is(err, raft.ErrProposalDropped) {
			// markProposed has moved them to the front of own[:k], over the abandoned ones. Move them to the end
			// of own[:k], and cut what is before them.
			q.pending.unmarkProposed(offered)
			abandoned := k - len(offered)
			copy(q.own[abandoned:k], offered)
			q.own = q.own[abandoned:]
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

// proposalsPerMessage returns how many of qs to propose in one message: at least one, and beyond that no more than
// maxMessageBytes. A configuration change has a message of its own, because it waits until all entries before it are
// applied (propose), and would delay the other proposals in its message.
func proposalsPerMessage(qs []proposal) int {
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

// newMessage returns a message with qs. Raft requires that proposals have no term.
func newMessage(from uint64, qs []proposal) *raftpb.Message {
	entries := make([]*raftpb.Entry, len(qs))
	for i, q := range qs {
		entries[i] = q.entry
	}
	return &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(from), Entries: entries}
}

// propose steps a proposal. It returns raft.ErrProposalDropped if raft cannot take it now, because there is no leader
// or no connection to it, leadership is being transferred, too much is uncommitted, or a change must wait.
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
		// A configuration change waits until the whole log is applied, and nothing overtakes it. Otherwise raft may
		// replace it by an empty entry: an earlier change is not applied yet, or raft has dropped one and still
		// counts it as pending (raft.go, stepLeader).
		q.raft.HandleReadys()
		if s := q.raft.State(); s.Applied < s.Last {
			return raft.ErrProposalDropped
		}
	}
	return q.raft.Step(m)
}

func isConfChange(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal }

func hasConfChange(m *raftpb.Message) bool { return slices.ContainsFunc(m.GetEntries(), isConfChange) }

// maxQuotaMessages limits the number of a follower's messages, because entries without data cost memory, too.
const maxQuotaMessages = 1024

// Quota limits the memory held by proposals that followers have forwarded and that raft has not taken yet, for each
// follower. When a follower's quota is used up, its stream is not read, so its proposals wait at the follower. If
// the follower is elected, its log entries come behind these proposals on the same stream. The stream is then read
// again, because a member that has lost its leadership drops forwarded proposals (Queue.Offer).
//
// Goroutines that read streams call Acquire. The raft loop passes each acquired message to Queue.AddForwarded or
// Queue.Drop, which release it exactly once. Otherwise the follower's quota would leak.
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

// tryAcquire acquires quota and returns nil, or returns a channel that the next release closes. A follower without
// acquired messages may send one of any size: otherwise one larger than maxBytes would block its stream forever.
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

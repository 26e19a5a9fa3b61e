package membership

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
)

var (
	// ErrLearnerNotReady means that the learner is too far behind to be promoted, or silent.
	ErrLearnerNotReady = errors.New("kvnode: the learner is not up to date")
	// ErrUnhealthy means that too few voters are connected for the change: it could cost the cluster its quorum.
	ErrUnhealthy = errors.New("kvnode: too few members are up for this change")
	// ErrRemoved means that this member was removed from the cluster.
	ErrRemoved = errors.New("kvnode: the member was removed from the cluster")
)

// Proposer proposes changes to raft and waits for their results.
type Proposer interface {
	// NextID returns the ID for a new proposal.
	NextID() uint64
	// ProposeChange proposes a configuration change, in which id is the ID of the proposal, and waits until it is
	// applied. It returns the error of the proposal or, if the change was refused when it was applied, the refusal.
	ProposeChange(ctx context.Context, id uint64, entry *raftpb.Entry) error
	// ProposeEmpty proposes an entry without effect, and waits until it is applied.
	ProposeEmpty(ctx context.Context) error
	// IsUpToDate reports whether a learner has caught up with the leader. It fails if this member is not the leader.
	IsUpToDate(id uint64) (bool, error)
}

// ChangerConfig configures a Changer.
type ChangerConfig struct {
	Self     uint64
	Token    string // of the cluster; new member IDs are derived from it
	Registry Registry
	Proposer Proposer
	Removals *RemovalAcks
	// Connected returns the members that this one is connected to.
	Connected func() map[uint64]bool
	Life      *lifecycle.Lifecycle

	// LaxReconfig turns the strict reconfiguration check off.
	LaxReconfig                   bool
	TickInterval, ElectionTimeout time.Duration
}

// Changer changes the members of the cluster, one member at a time.
type Changer struct{ cfg ChangerConfig }

// NewChanger returns a Changer.
func NewChanger(cfg ChangerConfig) *Changer { return &Changer{cfg} }

// Add adds a member that listens for its peers at peerURLs, as a learner or as a voter, and returns it.
func (c *Changer) Add(ctx context.Context, peerURLs []string, learner bool) (store.Member, error) {
	if err := CheckURLs(peerURLs); err != nil {
		return store.Member{}, err
	}
	// A removed ID is never used again, but its URLs may be. So the ID must not depend on the URLs alone.
	id := memberdir.HashID("member", strings.Join(peerURLs, ","), c.cfg.Token, rand.Text())
	m := store.Member{ID: id, PeerURLs: peerURLs, Learner: learner}
	typ := raftpb.ConfChangeAddNode
	if learner {
		typ = raftpb.ConfChangeAddLearnerNode
	}
	return m, c.change(ctx, typ, ChangeContext{Member: m})
}

// Promote makes a learner a voter. Only the leader knows whether the learner is up to date, so Promote fails on other
// members.
func (c *Changer) Promote(ctx context.Context, id uint64) error {
	ready, err := c.cfg.Proposer.IsUpToDate(id)
	if err != nil {
		return err
	}
	m := c.cfg.Registry.Members().ByID[id]
	if m.Learner && !ready {
		return ErrLearnerNotReady
	}
	m.ID, m.Learner = id, false
	return c.change(ctx, raftpb.ConfChangeAddNode, ChangeContext{Member: m, Promote: true})
}

// Update replaces the peer URLs of a member.
func (c *Changer) Update(ctx context.Context, id uint64, peerURLs []string) error {
	if err := CheckURLs(peerURLs); err != nil {
		return err
	}
	return c.change(ctx, raftpb.ConfChangeUpdateNode, ChangeContext{Member: store.Member{ID: id, PeerURLs: peerURLs}})
}

// Remove removes a member. When it returns nil, every majority of the remaining members can elect a leader without the
// removed one. Until then, the removed member must keep running.
func (c *Changer) Remove(ctx context.Context, id uint64) error {
	return c.change(ctx, raftpb.ConfChangeRemoveNode, ChangeContext{Member: store.Member{ID: id}})
}

// CheckURLs reports whether the peer URLs of one member are valid.
func CheckURLs(urls []string) error {
	if err := peerurl.Check(urls); err != nil {
		return fmt.Errorf("kvnode: %w", err)
	}
	return nil
}

// change proposes a change, waits until it is applied, and then confirms it (confirm).
func (c *Changer) change(ctx context.Context, typ raftpb.ConfChangeType, m ChangeContext) error {
	members := c.cfg.Registry.Members()
	if _, err := PlanChange(members, typ, &m); err != nil {
		return err
	}
	if !c.cfg.LaxReconfig {
		up := c.cfg.Connected()
		up[c.cfg.Self] = true
		if err := checkReconfig(members, up, typ, &m); err != nil {
			return err
		}
	}
	m.Proposal = c.cfg.Proposer.NextID()
	entry, err := NewChangeEntry(typ, &m)
	if err != nil {
		return err
	}
	if err := c.cfg.Proposer.ProposeChange(ctx, m.Proposal, entry); err != nil {
		return err
	}
	return c.confirm(ctx, typ, m.Member.ID)
}

// confirm waits until every majority of the new configuration contains a member that has the change on its disk as
// committed. In an election that member tells the others (leaderlease.Lease.RaiseCommit).
//
// Otherwise the members that remain after a removal could all crash, start again with the old configuration, and need
// the vote of the removed member.
func (c *Changer) confirm(ctx context.Context, typ raftpb.ConfChangeType, id uint64) (err error) {
	members := c.cfg.Registry.Members()
	self, ok := members.ByID[c.cfg.Self]
	switch {
	case typ != raftpb.ConfChangeRemoveNode:
		// The operator may start a new voter only after this answer, and without it there may be no majority. So the
		// wait is limited to half an election timeout, and its result is ignored.
		ctx, cancel := context.WithTimeout(ctx, c.cfg.ElectionTimeout/2)
		defer cancel()
		_ = c.commitAfter(ctx)
	case id == c.cfg.Self:
		// This member cannot propose an entry any more: members that have applied its removal refuse it.
		err = c.cfg.Removals.await(ctx)
	case !ok || self.Learner || !inEveryMajority(1, countVoters(members)):
		err = c.commitAfter(ctx)
	default:
		// This member is in every majority, and its log has the change as committed (applyConf in kvnode).
	}
	if err != nil {
		return fmt.Errorf("%w: member %x is removed, but too few of the remaining members have confirmed it; let it run until it stops itself", err, id)
	}
	return nil
}

// inEveryMajority reports whether every majority of the voters contains at least one voter of a given set of that
// size.
func inEveryMajority(size, voters int) bool { return size > (voters-1)/2 }

// commitAfter waits until an entry after the newest applied change is committed. A member that writes that entry to
// its disk also writes that the change is committed.
//
// Each attempt is limited to an election timeout. A proposal that is lost on its way is not proposed again while the
// same leader leads, so without the limit it would wait until ctx ends.
func (c *Changer) commitAfter(ctx context.Context) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, c.cfg.ElectionTimeout)
		err := c.cfg.Proposer.ProposeEmpty(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if err := c.cfg.Life.SleepContext(ctx, c.cfg.TickInterval); err != nil {
			return err
		}
	}
}

// checkReconfig is etcd's strict reconfiguration check, from the view of one member. It refuses a change that
// would leave fewer than a quorum of voters started, or up. A new learner counts as the voter that it will become. To
// replace a broken member, remove it first.
func checkReconfig(members *store.Members, up map[uint64]bool, typ raftpb.ConfChangeType, m *ChangeContext) error {
	learner := typ == raftpb.ConfChangeAddLearnerNode
	adds := learner || typ == raftpb.ConfChangeAddNode && !m.Promote
	removed := uint64(0)
	if typ == raftpb.ConfChangeRemoveNode {
		removed = m.Member.ID
	}
	voters, started, active := voterStates(members, up, removed)
	switch {
	case removed != 0 && (members.ByID[removed].Learner || !up[removed]):
		return nil // it contributes nothing to the quorum
	case m.Promote:
		voters, started, active = voters+1, started+1, active+1
	case adds && voters == 1:
		return nil // a cluster of one can grow in no other way
	case adds:
		voters++
	}
	quorum := voters/2 + 1
	if started < quorum && !learner {
		return fmt.Errorf("%w: %d of %d voters, and a quorum is %d", ErrNotStarted, started, voters, quorum)
	}
	if active < quorum {
		return fmt.Errorf("%w: %d of %d voters would be up, and a quorum is %d", ErrUnhealthy, active, voters, quorum)
	}
	return nil
}

// voterStates counts the voters other than removed. started of them have started at least once, and active of those
// are up.
func voterStates(members *store.Members, up map[uint64]bool, removed uint64) (voters, started, active int) {
	for id, m := range members.ByID {
		if m.Learner || id == removed {
			continue
		}
		voters++
		if m.Instance == "" {
			continue
		}
		started++
		if up[id] {
			active++
		}
	}
	return voters, started, active
}

// RemovalConfig configures RemovalAcks.
type RemovalConfig struct {
	Self     uint64
	Registry Registry
	Life     *lifecycle.Lifecycle
	// Advice completes the error of a removed member: what to do if it is to come back.
	Advice                        string
	TickInterval, ElectionTimeout time.Duration
}

// RemovalAcks records the members that have refused this one as removed. Each of them has applied the removal. Once
// every majority of the remaining voters contains one of them, they can elect a leader by themselves
// (leaderlease.Lease.RaiseCommit). Until then an election may need the vote of this member, so it keeps running.
type RemovalAcks struct {
	cfg     RemovalConfig
	stopper sync.Once // starts stopWhenReleased
	mu      struct {
		sync.Mutex
		acked map[uint64]bool
	}
}

// NewRemovalAcks returns RemovalAcks without an acknowledgement.
func NewRemovalAcks(cfg RemovalConfig) *RemovalAcks {
	a := &RemovalAcks{cfg: cfg}
	a.mu.acked = make(map[uint64]bool)
	return a
}

// RefusedBy records that peer has refused this member as removed. After the first acknowledgement this member
// stops with ErrRemoved once it is released (stopWhenReleased).
func (a *RemovalAcks) RefusedBy(peer uint64) {
	a.mu.Lock()
	a.mu.acked[peer] = true
	a.mu.Unlock()
	a.stopper.Do(func() { a.cfg.Life.Go(a.stopWhenReleased) })
}

// isReleased reports whether the remaining members can elect a leader without this one. The registry may still
// contain this member, if it has not applied its removal.
func (a *RemovalAcks) isReleased() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	acked, voters := 0, 0
	for id, m := range a.cfg.Registry.Members().ByID {
		if m.Learner || id == a.cfg.Self {
			continue
		}
		voters++
		if a.mu.acked[id] {
			acked++
		}
	}
	return inEveryMajority(acked, voters)
}

// await waits until this member is released. It polls at the interval of ticks.
func (a *RemovalAcks) await(ctx context.Context) error {
	for !a.isReleased() {
		if err := a.cfg.Life.SleepContext(ctx, a.cfg.TickInterval); err != nil {
			return err
		}
	}
	return nil
}

// stopWhenReleased stops the member an election timeout after it was released, so that its clients get their answers.
// The wait for the release has no limit: without this member the others may be unable to elect a leader.
func (a *RemovalAcks) stopWhenReleased() {
	for a.await(context.Background()) == nil {
		if !a.cfg.Life.Sleep(a.cfg.ElectionTimeout) {
			return
		}
		// Meanwhile the member may have applied an older change, such as the addition of a voter, and be needed
		// again.
		if a.isReleased() {
			a.cfg.Life.Fail(fmt.Errorf("%w; if it is to come back: %s", ErrRemoved, a.cfg.Advice))
			return
		}
	}
}

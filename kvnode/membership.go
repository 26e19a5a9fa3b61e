package kvnode

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
)

var (
	// ErrMemberExists means that a member with one of these peer URLs is there.
	ErrMemberExists = confchange.ErrMemberExists
	// ErrMemberNotFound means that there is no member with that ID.
	ErrMemberNotFound = confchange.ErrMemberNotFound
	// ErrNotLearner means that a voter cannot be promoted.
	ErrNotLearner = confchange.ErrNotLearner
	// ErrLearnerNotReady means that the learner is too far behind to be promoted.
	ErrLearnerNotReady = errors.New("kvnode: the learner is not up to date")
	// ErrTooManyLearners means that the cluster has a learner already.
	ErrTooManyLearners = confchange.ErrTooManyLearners
	// ErrNotStarted means that the change could leave the cluster without a quorum of
	// members that have ever started: the last voter cannot be removed, for example.
	ErrNotStarted = confchange.ErrNotStarted
	// ErrUnhealthy means that the change could cost the cluster its quorum, since
	// members are down.
	ErrUnhealthy = errors.New("kvnode: too few members are up for this change")
	// ErrRemoved means that this member was removed from the cluster.
	ErrRemoved = errors.New("kvnode: the member was removed from the cluster")
)

// membership is changed here, and each change waited for.
type membership struct {
	*parts
	proposals *proposals.Pending
	farewells *farewells
}

// AddMember adds a member that listens for its peers at peerURLs, as a learner
// or as a voter, and returns it. It may start afterwards, with Config.Existing.
func (c *membership) AddMember(ctx context.Context, peerURLs []string, learner bool) (store.Member, error) {
	if err := CheckPeerURLs(peerURLs); err != nil {
		return store.Member{}, err
	}
	// The same URLs may come back after a removal, so they are not enough.
	id := memberdir.HashID("member", strings.Join(peerURLs, ","), c.cfg.Token, rand.Text())
	m := store.Member{ID: id, PeerURLs: peerURLs, Learner: learner}
	typ := raftpb.ConfChangeAddNode
	if learner {
		typ = raftpb.ConfChangeAddLearnerNode
	}
	return m, c.change(ctx, typ, confchange.Context{Member: m})
}

// PromoteMember makes a learner a voter. Only the leader knows whether it is up
// to date: elsewhere it fails with ErrNotLeader.
func (c *membership) PromoteMember(ctx context.Context, id uint64) error {
	if !c.leadership.Leads() {
		return ErrNotLeader
	}
	m := c.store.Members().ByID[id]
	m.ID = id
	ready, err := ask(context.Background(), &c.calls, func(l *raftLoop) bool { return l.upToDate(id) })
	if err != nil {
		return err
	}
	if m.Learner && !ready {
		return ErrLearnerNotReady
	}
	m.Learner = false
	return c.change(ctx, raftpb.ConfChangeAddNode, confchange.Context{Member: m, Promote: true})
}

// upToDate reports whether a member has nine tenths of the leader's log, as etcd
// wants it of learners.
func (l *raftLoop) upToDate(id uint64) bool {
	progress := l.raw.Status().Progress
	return float64(progress[id].Match) >= 0.9*float64(progress[l.ID()].Match) && progress[id].RecentActive
}

// UpdateMember gives a member other peer URLs.
func (c *membership) UpdateMember(ctx context.Context, id uint64, peerURLs []string) error {
	if err := CheckPeerURLs(peerURLs); err != nil {
		return err
	}
	return c.change(ctx, raftpb.ConfChangeUpdateNode, confchange.Context{Member: store.Member{ID: id, PeerURLs: peerURLs}})
}

// RemoveMember removes a member, which then stops itself. Its ID never comes
// back. When it returns nil, any majority of those who are left elects a leader,
// and does not need the one that was removed. Until then keep that one running.
func (c *membership) RemoveMember(ctx context.Context, id uint64) error {
	return c.change(ctx, raftpb.ConfChangeRemoveNode, confchange.Context{Member: store.Member{ID: id}})
}

// change proposes a change and waits until it is applied, and known to enough
// of the new members.
func (c *membership) change(ctx context.Context, typ raftpb.ConfChangeType, m confchange.Context) error {
	if _, err := confchange.PlanChange(c.store.Members(), typ, &m); err != nil {
		return err
	}
	if !c.cfg.LaxReconfig {
		if err := c.affordable(typ, &m); err != nil {
			return err
		}
	}
	m.Proposal = c.proposals.NextID()
	entry, err := confchange.NewEntry(typ, &m)
	if err != nil {
		return err
	}
	if size := len(entry.GetData()); size > c.cfg.MaxRequestBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, c.cfg.MaxRequestBytes)
	}
	ctx, cancel := c.cfg.bounded(ctx)
	defer cancel()
	r, err := c.proposals.SubmitChange(ctx, m.Proposal, entry)
	if err := cmp.Or(err, r.Err); err != nil {
		return err
	}
	return c.confirm(ctx, typ, m.Member.ID)
}

// confirm waits until every majority of the new members has one that knows the change
// after a crash, too. Where a member was removed, that one tells the others in an
// election (leaderlease.Lease.LearnCommit), for all of them were voters before, and campaign.
func (c *membership) confirm(ctx context.Context, typ raftpb.ConfChangeType, id uint64) (err error) {
	members := c.store.Members()
	self, ok := members.ByID[c.ID()]
	switch {
	case typ != raftpb.ConfChangeRemoveNode:
		// The majority may not be there yet: who is added may wait to be told so before
		// it starts. So half an election timeout has to do.
		ctx, cancel := context.WithTimeout(ctx, c.cfg.ElectionTimeout/2)
		defer cancel()
		_ = c.commitBehind(ctx)
	case id == c.ID():
		err = c.farewells.awaitRelease(ctx) // whoever knows does not hear this member
	case !ok || self.Learner || !inEveryMajority(1, confchange.CountVoters(members)):
		err = c.commitBehind(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %x is removed, but too few of the others are known to know; let it run until it stops itself", err, id)
	}
	return nil
}

// inEveryMajority reports whether every majority of so many voters has one of some.
func inEveryMajority(some, voters int) bool { return some > (voters-1)/2 }

// commitBehind waits until an entry behind the change that was applied last is
// committed. Whoever writes that entry writes with it that the change is committed.
// A try takes no longer than an election: what a link has lost on the way to a leader that
// goes on is proposed again by nobody.
func (c *membership) commitBehind(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, c.cfg.ElectionTimeout)
		_, err := c.proposals.Submit(try, &store.Command{})
		cancel()
		if err == nil {
			return nil
		}
		if err := c.life.SleepContext(ctx, c.cfg.TickInterval); err != nil {
			return err
		}
	}
}

// affordable refuses changes after which too few voters have started or are up, as
// this member sees it (etcd's strict reconfiguration check, which counts a learner as
// the voter that it is to be). To replace a member, the broken one is removed first.
func (c *membership) affordable(typ raftpb.ConfChangeType, m *confchange.Context) error {
	learner := typ == raftpb.ConfChangeAddLearnerNode
	adds := learner || typ == raftpb.ConfChangeAddNode && !m.Promote
	leaves := uint64(0)
	if typ == raftpb.ConfChangeRemoveNode {
		leaves = m.Member.ID
	}
	up := map[uint64]bool{c.ID(): true}
	for _, p := range c.links.Peers() {
		up[p.ID] = p.Connected
	}
	members := c.store.Members()
	voters, started, active := countActive(members, up, leaves)
	switch {
	case leaves != 0 && (members.ByID[leaves].Learner || !up[leaves]):
		return nil // it does not help as it is
	case m.Promote:
		voters, started, active = voters+1, started+1, active+1
	case adds && voters == 1:
		return nil // from one to two there is no other way
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

// countActive returns how many voters there are but for one that leaves, how many of
// them have ever started, and how many of those are up.
func countActive(members *store.Members, up map[uint64]bool, leaves uint64) (voters, started, active int) {
	for id, m := range members.ByID {
		if m.Learner || id == leaves {
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

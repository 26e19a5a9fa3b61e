package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
)

var (
	// ErrMalformedChange means that a configuration change is not one that NewChangeEntry or NewClusterVersionEntry makes.
	ErrMalformedChange = errors.New("kvnode: malformed configuration change")
	// ErrMemberExists means that the cluster has a member with one of these peer URLs, or with this ID.
	ErrMemberExists = errors.New("kvnode: a member has that peer URL")
	// ErrMemberNotFound means that there is no member with that ID.
	ErrMemberNotFound = errors.New("kvnode: no such member")
	// ErrNotLearner means that a voter cannot be promoted.
	ErrNotLearner = errors.New("kvnode: the member is not a learner")
	// ErrTooManyLearners means that the cluster has a learner already.
	ErrTooManyLearners = errors.New("kvnode: too many learners")
	// ErrNotStarted means that the change could leave the cluster without a quorum of
	// members that have ever started: the last voter cannot be removed, for example.
	ErrNotStarted = errors.New("kvnode: too few started members would remain")
)

// maxLearners is etcd's default. For the leader, a learner is as much work as a voter.
const maxLearners = 1

// IsConfChange reports whether an entry is a configuration change. An EntryConfChangeV2 is one: it raises the
// cluster version.
func IsConfChange(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal }

// ChangeContext is the context of a raft configuration change, as JSON.
type ChangeContext struct {
	// Proposal is the ID of the proposal, and Member is the member that changes.
	Proposal uint64       `json:"proposal,omitempty"`
	Member   store.Member `json:"member"`
	// Promote is set if a learner becomes a voter. Without it, ConfChangeAddNode adds a member.
	Promote bool `json:"promote,omitempty"`
	// ClusterVersion is the cluster version that the change sets. Such a change has no other effect.
	ClusterVersion int64 `json:"format,omitempty"`
}

// NewChangeEntry returns an entry with a change of c.Member.
func NewChangeEntry(typ raftpb.ConfChangeType, c *ChangeContext) (*raftpb.Entry, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	data, err = proto.Marshal(&raftpb.ConfChange{Type: typ.Enum(), NodeId: new(c.Member.ID), Context: data})
	return &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Data: data}, err
}

// NewClusterVersionEntry returns an entry that raises the cluster version: a configuration change that changes no
// member. It is an EntryConfChangeV2, at which the first versions of kvnode stop.
func NewClusterVersionEntry(c *ChangeContext) (*raftpb.Entry, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	none := []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(raft.None)}}
	data, err = proto.Marshal(&raftpb.ConfChangeV2{Changes: none, Context: data})
	return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: data}, err
}

// Plan says what an entry with a configuration change does. Apart from Stop it depends on the entry and the registry
// only, so it is the same on all members.
type Plan struct {
	// Raft is the change for raft. If the change is refused it names no member, and has no effect.
	Raft     *raftpb.ConfChange
	Registry *store.MemberChange // nil: none
	Proposal uint64              // the ID of the proposal that waits for the result
	Refusal  error
	// Stop is set if the entry raises the cluster version to one that this version does not
	// know. The member must not apply the entry, nor any later one.
	Stop error
}

// Removes reports whether the change removes the member id.
func (p *Plan) Removes(id uint64) bool { return p.Registry != nil && p.Registry.Remove == id }

// PlanEntry returns what e does. All members refuse an entry that does not decode. If they stopped instead, they
// would stop at the same entry after each start.
func PlanEntry(members *store.Members, e *raftpb.Entry, newestClusterVersion int64) Plan {
	plan := Plan{Raft: &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(raft.None)}}
	cc, ctx, err := decodeChange(e)
	if err != nil {
		plan.Refusal = err
		return plan
	}
	plan.Proposal = ctx.Proposal
	if ctx.ClusterVersion != 0 {
		plan.Registry = &store.MemberChange{ClusterVersion: ctx.ClusterVersion}
		if ctx.ClusterVersion > newestClusterVersion {
			plan.Stop = fmt.Errorf("it raises the cluster version to %d, and this version knows %d to %d: start this member with the version of the others",
				ctx.ClusterVersion, store.ClusterVersionFirst, newestClusterVersion)
		}
		return plan
	}
	plan.Registry, plan.Refusal = PlanChange(members, cc.GetType(), ctx)
	if plan.Refusal != nil {
		plan.Registry = nil
		return plan
	}
	plan.Raft = cc
	return plan
}

// CheckForwarded rejects configuration changes that no member forwards. In the log, such a change could raise the
// cluster version, or stop members of former versions after each start.
func CheckForwarded(m *raftpb.Message) error {
	changes := 0
	for _, e := range m.GetEntries() {
		if !IsConfChange(e) {
			continue
		}
		if changes++; changes > 1 {
			return fmt.Errorf("%w: several in one message, of which raft takes one", ErrMalformedChange)
		}
		cc, ctx, err := decodeChange(e)
		if err != nil {
			return err
		}
		if ctx.ClusterVersion != 0 {
			return fmt.Errorf("%w: only the leader raises the cluster version", ErrMalformedChange)
		}
		if cc.GetNodeId() == raft.None {
			return fmt.Errorf("%w: it names no member", ErrMalformedChange)
		}
	}
	return nil
}

// changeTypes are all types of changes that raft knows. It panics at others.
var changeTypes = []raftpb.ConfChangeType{
	raftpb.ConfChangeAddNode, raftpb.ConfChangeRemoveNode, raftpb.ConfChangeUpdateNode, raftpb.ConfChangeAddLearnerNode,
}

// decodeChange decodes an entry that NewChangeEntry, NewClusterVersionEntry or raft's Bootstrap has made. Its error
// wraps ErrMalformedChange.
func decodeChange(e *raftpb.Entry) (*raftpb.ConfChange, *ChangeContext, error) {
	cc, ctx := &raftpb.ConfChange{}, &ChangeContext{}
	malformed := func(format string, args ...any) (*raftpb.ConfChange, *ChangeContext, error) {
		return nil, nil, fmt.Errorf("%w: %w", ErrMalformedChange, fmt.Errorf(format, args...))
	}
	raisesVersion := e.GetType() == raftpb.EntryConfChangeV2
	if raisesVersion {
		v2 := &raftpb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), v2); err != nil {
			return malformed("%w", err)
		}
		cc.Context = v2.GetContext()
	} else if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return malformed("%w", err)
	}
	if err := json.Unmarshal(cc.GetContext(), ctx); err != nil {
		return malformed("context: %w", err)
	}
	switch {
	case raisesVersion && ctx.ClusterVersion < store.ClusterVersionFirst, !raisesVersion && ctx.ClusterVersion != 0:
		return malformed("type %s with cluster version %d", e.GetType(), ctx.ClusterVersion)
	case raft.IsLocalMsgTarget(cc.GetNodeId()):
		return malformed("member %x is one of raft's own", cc.GetNodeId())
	case !slices.Contains(changeTypes, cc.GetType()), ctx.Promote && cc.GetType() != raftpb.ConfChangeAddNode:
		return malformed("type %d, promote %v", cc.GetType(), ctx.Promote)
	}
	ctx.Member.ID = cc.GetNodeId()
	ctx.Member.Learner = cc.GetType() == raftpb.ConfChangeAddLearnerNode
	return cc, ctx, nil
}

// PlanChange returns what a configuration change does to the registry, or why it is refused. A member calls it before
// it proposes the change. All members call it again when they apply the change, because other changes may have been
// applied in between.
func PlanChange(members *store.Members, typ raftpb.ConfChangeType, c *ChangeContext) (*store.MemberChange, error) {
	known, exists := members.ByID[c.Member.ID]
	switch {
	case c.Member.ID == raft.None || members.Removed[c.Member.ID]:
		return nil, fmt.Errorf("%w: %x is no member, or was removed", ErrMemberNotFound, c.Member.ID)
	case typ == raftpb.ConfChangeAddNode && !c.Promote, typ == raftpb.ConfChangeAddLearnerNode:
		if exists {
			return nil, fmt.Errorf("%w, or that ID: %x", ErrMemberExists, c.Member.ID)
		}
		if c.Member.Learner && len(members.ByID)-countVoters(members) >= maxLearners {
			return nil, fmt.Errorf("%w: at most %d", ErrTooManyLearners, maxLearners)
		}
		return &store.MemberChange{Set: &c.Member}, urlsFree(members, &c.Member)
	case !exists:
		return nil, fmt.Errorf("%w: %x", ErrMemberNotFound, c.Member.ID)
	case typ == raftpb.ConfChangeAddNode:
		if !known.Learner {
			return nil, fmt.Errorf("%w: %x", ErrNotLearner, known.ID)
		}
		known.Learner = false
		return &store.MemberChange{Set: &known}, nil
	case typ == raftpb.ConfChangeUpdateNode:
		known.PeerURLs = c.Member.PeerURLs
		return &store.MemberChange{Set: &known}, urlsFree(members, &c.Member)
	default:
		if !known.Learner && countVoters(members) == 1 {
			return nil, fmt.Errorf("%w: %x is the last voter", ErrNotStarted, known.ID)
		}
		return &store.MemberChange{Remove: known.ID}, nil
	}
}

// urlsFree fails if another member has one of m's peer URLs.
func urlsFree(members *store.Members, m *store.Member) error {
	for id, other := range members.ByID {
		for _, u := range m.PeerURLs {
			if id != m.ID && slices.Contains(other.PeerURLs, u) {
				return fmt.Errorf("%w: %s is of %x", ErrMemberExists, u, id)
			}
		}
	}
	return nil
}

// countVoters returns how many members are voters.
func countVoters(members *store.Members) (voters int) {
	for _, m := range members.ByID {
		if !m.Learner {
			voters++
		}
	}
	return voters
}

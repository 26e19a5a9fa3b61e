package kvnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/store"
)

// errMalformedChange means that a configuration change is not one that this package
// proposes.
var errMalformedChange = errors.New("kvnode: malformed configuration change")

// confContext rides on a configuration change.
type confContext struct {
	// Proposal is the ID of the proposal, Member what the change is about.
	Proposal uint64       `json:"proposal,omitempty"`
	Member   store.Member `json:"member"`
	// Promote tells a learner that becomes a voter from a new member.
	Promote bool `json:"promote,omitempty"`
	// Format raises the cluster's format. Nothing else is changed then.
	Format int64 `json:"format,omitempty"`
}

func confEntry(typ raftpb.ConfChangeType, c *confContext) (*raftpb.Entry, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	data, err = proto.Marshal(&raftpb.ConfChange{Type: typ.Enum(), NodeId: new(c.Member.ID), Context: data})
	return &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Data: data}, err
}

// changePlan is what an entry with a configuration change does. It is a function of
// the entry and of the registry, so the same on all members.
type changePlan struct {
	raft     *raftpb.ConfChange  // of nobody if it is refused: raft takes that for none
	registry *store.MemberChange // nil: nothing
	proposal uint64              // who waits for it
	refusal  error
	// stop is why this member must not apply anything after the entry, nil if it may: it
	// raises the cluster's format to one that this version does not know.
	stop error
}

func (p *changePlan) removes(id uint64) bool { return p.registry != nil && p.registry.Remove == id }

// planEntry says what e does. What does not decode is refused, on all members alike, for
// whoever stopped there would stop again at each start, and so would all the others.
func planEntry(members *store.Members, e *raftpb.Entry, newestFormat int64) changePlan {
	plan := changePlan{raft: &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(raft.None)}}
	cc, ctx, err := decodeChange(e)
	if err != nil {
		plan.refusal = err
		return plan
	}
	plan.proposal = ctx.Proposal
	if ctx.Format != 0 {
		plan.registry = &store.MemberChange{Format: ctx.Format}
		if ctx.Format > newestFormat {
			plan.stop = fmt.Errorf("it raises the cluster's format to %d, and this version knows %d to %d: start this member with the version of the others",
				ctx.Format, store.FormatFirst, newestFormat)
		}
		return plan
	}
	plan.registry, plan.refusal = planChange(members, cc.GetType(), ctx)
	if plan.refusal != nil {
		plan.registry = nil
		return plan
	}
	plan.raft = cc
	return plan
}

// checkForwarded refuses configuration changes that no member forwards. In the log they
// would do no more than nothing, but members of former versions stop there for ever.
func checkForwarded(m *raftpb.Message) error {
	changes := 0
	for _, e := range m.GetEntries() {
		if !isConfChange(e) {
			continue
		}
		if changes++; changes > 1 {
			return fmt.Errorf("%w: several in one message, of which raft takes one", errMalformedChange)
		}
		cc, ctx, err := decodeChange(e)
		if err != nil {
			return err
		}
		if ctx.Format != 0 {
			return fmt.Errorf("%w: only who leads raises the cluster's format", errMalformedChange)
		}
		if cc.GetNodeId() == raft.None {
			return fmt.Errorf("%w: of nobody", errMalformedChange)
		}
	}
	return nil
}

// changeTypes are those of raft's that there are; it panics at others.
var changeTypes = []raftpb.ConfChangeType{
	raftpb.ConfChangeAddNode, raftpb.ConfChangeRemoveNode, raftpb.ConfChangeUpdateNode, raftpb.ConfChangeAddLearnerNode,
}

// decodeChange is the reverse of confEntry, of what raft bootstraps with, and of
// formatEntry. Its error wraps errMalformedChange.
func decodeChange(e *raftpb.Entry) (*raftpb.ConfChange, *confContext, error) {
	cc, ctx := &raftpb.ConfChange{}, &confContext{}
	malformed := func(format string, args ...any) (*raftpb.ConfChange, *confContext, error) {
		return nil, nil, fmt.Errorf("%w: %w", errMalformedChange, fmt.Errorf(format, args...))
	}
	raises := e.GetType() == raftpb.EntryConfChangeV2
	if raises {
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
	case raises && ctx.Format < store.FormatFirst, !raises && ctx.Format != 0:
		return malformed("type %s with format %d", e.GetType(), ctx.Format)
	case raft.IsLocalMsgTarget(cc.GetNodeId()):
		return malformed("member %x is one of raft's own", cc.GetNodeId())
	case !slices.Contains(changeTypes, cc.GetType()), ctx.Promote && cc.GetType() != raftpb.ConfChangeAddNode:
		return malformed("type %d, promote %v", cc.GetType(), ctx.Promote)
	}
	ctx.Member.ID = cc.GetNodeId()
	ctx.Member.Learner = cc.GetType() == raftpb.ConfChangeAddLearnerNode
	return cc, ctx, nil
}

// planChange says what a configuration change means for the registry, or why it
// must not be made. It is asked when the change is proposed, and, since others
// may have come in between, again when it is applied, where all members agree.
func planChange(members *store.Members, typ raftpb.ConfChangeType, c *confContext) (*store.MemberChange, error) {
	known, exists := members.ByID[c.Member.ID]
	switch {
	case c.Member.ID == raft.None || members.Removed[c.Member.ID]:
		return nil, fmt.Errorf("%w: %x is nobody, or was removed", ErrMemberNotFound, c.Member.ID)
	case typ == raftpb.ConfChangeAddNode && !c.Promote, typ == raftpb.ConfChangeAddLearnerNode:
		if exists {
			return nil, fmt.Errorf("%w: %x", ErrMemberExists, c.Member.ID)
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

func countVoters(members *store.Members) (voters int) {
	for _, m := range members.ByID {
		if !m.Learner {
			voters++
		}
	}
	return voters
}

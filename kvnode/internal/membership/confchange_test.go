package membership

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// A change that comes after others does the same on all members.
func TestPlanChange(t *testing.T) {
	members := &store.Members{
		ByID: map[uint64]store.Member{
			1: {ID: 1, Name: "a", PeerURLs: peerURLs("a")},
			2: {ID: 2, Name: "b", PeerURLs: peerURLs("b"), Learner: true},
		},
		Removed: map[uint64]bool{9: true},
	}
	tests := []struct {
		name string
		typ  string
		ctx  ChangeContext
		want error
	}{
		{"a new voter", "add", ChangeContext{Member: store.Member{ID: 3, PeerURLs: peerURLs("c")}}, nil},
		{"an ID that is there", "add", ChangeContext{Member: store.Member{ID: 1, PeerURLs: peerURLs("c")}}, ErrMemberExists},
		{"a URL that is there", "add", ChangeContext{Member: store.Member{ID: 3, PeerURLs: peerURLs("a")}}, ErrMemberExists},
		{"an ID that was removed", "add", ChangeContext{Member: store.Member{ID: 9, PeerURLs: peerURLs("c")}}, ErrMemberNotFound},
		{"a second learner", "learner", ChangeContext{Member: store.Member{ID: 3, Learner: true, PeerURLs: peerURLs("c")}}, ErrTooManyLearners},
		{"the learner's promotion", "add", ChangeContext{Member: store.Member{ID: 2}, Promote: true}, nil},
		{"a voter's promotion", "add", ChangeContext{Member: store.Member{ID: 1}, Promote: true}, ErrNotLearner},
		{"a stranger's promotion", "add", ChangeContext{Member: store.Member{ID: 3}, Promote: true}, ErrMemberNotFound},
		{"other URLs", "update", ChangeContext{Member: store.Member{ID: 1, PeerURLs: peerURLs("d")}}, nil},
		{"the other's URLs", "update", ChangeContext{Member: store.Member{ID: 1, PeerURLs: peerURLs("b")}}, ErrMemberExists},
		{"the learner's removal", "remove", ChangeContext{Member: store.Member{ID: 2}}, nil},
		{"the last voter's removal", "remove", ChangeContext{Member: store.Member{ID: 1}}, ErrNotStarted},
		{"a stranger's removal", "remove", ChangeContext{Member: store.Member{ID: 3}}, ErrMemberNotFound},
		{"no member", "add", ChangeContext{}, ErrMemberNotFound},
		{"a learner without an ID", "learner", ChangeContext{}, ErrMemberNotFound},
		{"the promotion of no member", "add", ChangeContext{Promote: true}, ErrMemberNotFound},
		{"the removal of no member", "remove", ChangeContext{}, ErrMemberNotFound},
		{"other URLs of no member", "update", ChangeContext{Member: store.Member{PeerURLs: peerURLs("d")}}, ErrMemberNotFound},
		{"a promotion after a removal", "add", ChangeContext{Member: store.Member{ID: 9}, Promote: true}, ErrMemberNotFound},
		{"other URLs after a removal", "update", ChangeContext{Member: store.Member{ID: 9, PeerURLs: peerURLs("d")}}, ErrMemberNotFound},
		{"a second removal", "remove", ChangeContext{Member: store.Member{ID: 9}}, ErrMemberNotFound},
		{"a learner with an ID that is there", "learner", ChangeContext{Member: store.Member{ID: 1, PeerURLs: peerURLs("c")}}, ErrMemberExists},
		{"a stranger with other URLs", "update", ChangeContext{Member: store.Member{ID: 3, PeerURLs: peerURLs("d")}}, ErrMemberNotFound},
		{"the same URLs", "update", ChangeContext{Member: store.Member{ID: 1, PeerURLs: peerURLs("a")}}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			change, err := PlanChange(members, confTypes[tc.typ], &tc.ctx)
			if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
				t.Errorf("PlanChange(%s) = %+v, %v, want %v", tc.name, change, err, tc.want)
			}
			if set := change; err == nil && tc.ctx.Promote && (set.Set.Learner || set.Set.Name != "b") {
				t.Errorf("PlanChange(%s) = %+v, want a voter that keeps its name", tc.name, set.Set)
			}
		})
	}
}

var confTypes = map[string]raftpb.ConfChangeType{
	"add": raftpb.ConfChangeAddNode, "learner": raftpb.ConfChangeAddLearnerNode,
	"update": raftpb.ConfChangeUpdateNode, "remove": raftpb.ConfChangeRemoveNode,
}

// A change that is refused when it is applied leaves the registry as it is.
func TestARefusedChangeRegistersNoMember(t *testing.T) {
	members := &store.Members{ByID: map[uint64]store.Member{1: {ID: 1, PeerURLs: peerURLs("a")}}}
	for typ, id := range map[raftpb.ConfChangeType]uint64{raftpb.ConfChangeAddNode: 2, raftpb.ConfChangeUpdateNode: 1} {
		members.ByID[3] = store.Member{ID: 3, PeerURLs: peerURLs("c")}
		e, err := NewChangeEntry(typ, &ChangeContext{Member: store.Member{ID: id, PeerURLs: peerURLs("c")}})
		if err != nil {
			t.Fatal(err)
		}
		plan := PlanEntry(members, e, store.ClusterVersionNewest)
		if plan.Stop != nil || plan.Refusal == nil || plan.Registry != nil || plan.Raft.GetNodeId() != 0 {
			t.Errorf("PlanEntry(%s to a URL that is taken) = %+v, want a refusal and no change", typ, plan)
		}
	}
}

package leaderlease

import (
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// wander lets a group change the membership of 3, 4 and 5 at random, with partitions,
// elections and transfers, and calls look with each member's disk and the highest commit index that any
// member has known. It returns how many changes that came to.
func wander(t *testing.T, seed uint64, look func(disk *raft.MemoryStorage, committed uint64)) (changes int) {
	g := newForgottenGroup(t)
	r := rand.New(rand.NewPCG(seed, 1))
	types := []raftpb.ConfChangeType{raftpb.ConfChangeAddNode, raftpb.ConfChangeRemoveNode, raftpb.ConfChangeAddLearnerNode}
	var committed uint64
	for range 300 {
		m := g.members[1+r.Uint64N(5)]
		s := m.raw.BasicStatus()
		switch {
		case s.RaftState != raft.StateLeader:
			if r.IntN(8) == 0 && m.CanCampaign() == nil {
				_ = m.raw.Campaign()
			}
		case r.IntN(8) == 0:
			m.raw.TransferLeader(1 + r.Uint64N(5))
		default:
			cc := &raftpb.ConfChangeV2{}
			for range 1 + r.IntN(2) { // two of them go through a joint configuration
				cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: types[r.IntN(len(types))].Enum(), NodeId: new(3 + r.Uint64N(3))})
			}
			_ = m.raw.ProposeConfChange(cc)
			_ = m.raw.Propose([]byte("x"))
		}
		if r.IntN(10) == 0 {
			g.parts[1+r.Uint64N(5)] = r.IntN(2)
		}
		if r.IntN(3) == 0 {
			g.settle(nil)
		} else {
			g.tick()
		}
		for _, m := range g.members {
			committed = max(committed, m.raw.BasicStatus().GetCommit())
		}
		for _, m := range g.members {
			look(m.disk, committed)
		}
	}
	for _, m := range g.members {
		n := 0
		last, _ := m.disk.LastIndex()
		_ = eachEntry(m.disk, 2, last+1, func(e *raftpb.Entry) bool {
			if changesConf(e) {
				n++
			}
			return true
		})
		changes = max(changes, n)
	}
	return changes
}

// What a log proves to be committed is: no log ever proves more than any member knows, with
// whatever commit index it starts.
func TestALogProvesWhatIsCommitted(t *testing.T) {
	changes, groups := 0, 30
	if testing.Short() {
		groups = 6
	}
	for seed := range uint64(groups) {
		changes += wander(t, seed, func(disk *raft.MemoryStorage, committed uint64) {
			hard, _, _ := disk.InitialState()
			for _, stored := range []uint64{0, hard.GetCommit() / 2, hard.GetCommit()} {
				proven, err := provenCommit(disk, stored)
				if err != nil || proven > committed {
					t.Fatalf("seed %d: with commit index %d the log proves %d, %v, and no member knows more than %d", seed, stored, proven, err, committed)
				}
			}
		})
	}
	if want := 3 * groups; changes < want {
		t.Errorf("%d groups have made %d changes, want at least %d", groups, changes, want)
	}
}

// The newest change is not proven: if it were taken for committed, the test above would find
// that.
func TestTheNewestChangeIsNotProven(t *testing.T) {
	for seed := range uint64(30) {
		found := false
		wander(t, seed, func(disk *raft.MemoryStorage, committed uint64) {
			last, _ := disk.LastIndex()
			_ = eachEntry(disk, 2, last+1, func(e *raftpb.Entry) bool {
				found = found || changesConf(e) && e.GetIndex() > committed
				return true
			})
		})
		if found {
			return
		}
	}
	t.Error("in 30 groups the newest change of each log was committed at once, want one that was not")
}

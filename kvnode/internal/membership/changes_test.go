package membership

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
)

const electionTimeout = time.Second

// fakeProposer applies each change at once, and loses the first lost empty entries.
type fakeProposer struct {
	apply func(*raftpb.Entry) error
	lost  int
	empty int // empty entries that were proposed
}

func (p *fakeProposer) NextID() uint64 { return 7 }

func (p *fakeProposer) ProposeChange(_ context.Context, id uint64, e *raftpb.Entry) error {
	if id != 7 {
		return errors.New("the proposal has another ID")
	}
	return p.apply(e)
}

func (p *fakeProposer) ProposeEmpty(ctx context.Context) error {
	if p.empty++; p.empty > p.lost {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (p *fakeProposer) IsUpToDate(uint64) (bool, error) { return true, nil }

// changerOf returns the Changer of the member 1, which is connected to the members in up.
func changerOf(s *fakeStore, p *fakeProposer, up ...uint64) *Changer {
	life := lifecycle.New(slog.New(slog.DiscardHandler))
	p.apply = func(e *raftpb.Entry) error {
		plan := PlanEntry(s.Members(), e, store.ClusterVersionNewest)
		if plan.Refusal != nil {
			return plan.Refusal
		}
		next := registry()
		maps.Copy(next.ByID, s.Members().ByID)
		if set := plan.Registry.Set; set != nil {
			next.ByID[set.ID] = *set
		} else {
			delete(next.ByID, plan.Registry.Remove)
			next.Removed[plan.Registry.Remove] = true
		}
		s.set(next)
		return nil
	}
	return NewChanger(ChangerConfig{
		Self: 1, Registry: s, Proposer: p, Life: life, TickInterval: electionTimeout / 10, ElectionTimeout: electionTimeout,
		Removals: NewRemovalAcks(RemovalConfig{Self: 1, Registry: s, Life: life, TickInterval: electionTimeout / 10, ElectionTimeout: electionTimeout}),
		Connected: func() map[uint64]bool {
			connected := make(map[uint64]bool)
			for _, id := range up {
				connected[id] = true
			}
			return connected
		},
	})
}

// Both sides of each edge of etcd's strict reconfiguration check, for a member 1 that is up.
func TestStrictReconfigurationCheck(t *testing.T) {
	voter := func(id uint64) store.Member { return store.Member{ID: id, Instance: "x"} }
	fresh := func(id uint64) store.Member { return store.Member{ID: id} }
	learner := func(id uint64) store.Member { return store.Member{ID: id, Learner: true, Instance: "x"} }
	const add, addLearner, update, remove = raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode, raftpb.ConfChangeUpdateNode, raftpb.ConfChangeRemoveNode
	for _, test := range []struct {
		name    string
		members []store.Member
		up      []uint64
		typ     raftpb.ConfChangeType
		id      uint64
		promote bool
		want    error
	}{
		{"a second voter", []store.Member{voter(1)}, nil, add, 9, false, nil},
		{"a third voter, and the second has not started", []store.Member{voter(1), fresh(2)}, nil, add, 9, false, ErrNotStarted},
		{"a learner, and the second voter has not started", []store.Member{voter(1), fresh(2)}, nil, addLearner, 9, false, ErrUnhealthy},
		{"a third voter, and both are up", []store.Member{voter(1), voter(2)}, []uint64{2}, add, 9, false, nil},
		{"a third voter, and the second is down", []store.Member{voter(1), voter(2)}, nil, add, 9, false, ErrUnhealthy},
		{"a fourth voter, and one is down", []store.Member{voter(1), voter(2), voter(3)}, []uint64{2}, add, 9, false, ErrUnhealthy},
		{"a learner beside three voters, and one is down", []store.Member{voter(1), voter(2), voter(3)}, []uint64{2}, addLearner, 9, false, ErrUnhealthy},
		{"a fifth voter, and one is down", []store.Member{voter(1), voter(2), voter(3), voter(4)}, []uint64{2, 3}, add, 9, false, nil},
		{"the removal of a member that is down", []store.Member{voter(1), voter(2), voter(3)}, []uint64{2}, remove, 3, false, nil},
		{"the removal of one that is up, and another is down", []store.Member{voter(1), voter(2), voter(3)}, []uint64{2}, remove, 2, false, ErrUnhealthy},
		{"the removal of one of three that are up", []store.Member{voter(1), voter(2), voter(3)}, []uint64{2, 3}, remove, 2, false, nil},
		{"the removal of a learner without a quorum", []store.Member{voter(1), voter(2), voter(3), learner(4)}, []uint64{4}, remove, 4, false, nil},
		{"a promotion, and one of two voters is down", []store.Member{voter(1), voter(2), learner(3)}, []uint64{3}, add, 3, true, nil},
		{"a promotion without a quorum", []store.Member{voter(1), voter(2), voter(3), voter(4), learner(5)}, []uint64{5}, add, 5, true, ErrUnhealthy},
		{"other URLs without a quorum", []store.Member{voter(1), voter(2), voter(3)}, nil, update, 2, false, ErrUnhealthy},
		{"other URLs, and one of three is down", []store.Member{voter(1), voter(2), voter(3)}, []uint64{2}, update, 3, false, nil},
	} {
		up := map[uint64]bool{1: true}
		for _, id := range test.up {
			up[id] = true
		}
		c := &ChangeContext{Member: store.Member{ID: test.id}, Promote: test.promote}
		if err := checkReconfig(registry(test.members...), up, test.typ, c); !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s: checkReconfig() = %v, want %v", test.name, err, test.want)
		}
	}
}

// A removal returns when every majority of the remaining voters has a member that knows, and not before.
func TestARemovalWaitsUntilItIsKnown(t *testing.T) {
	for _, test := range []struct {
		name    string
		voters  int
		learner bool // this member
		empty   int  // entries behind the change
	}{
		{"of two voters the other one", 2, false, 0}, // this member is the majority that remains
		{"of three voters", 3, false, 0},             // it is in every majority of two
		{"of four voters", 4, false, 1},
		{"by a learner", 2, true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeStore{members: registry()}
				var up []uint64
				for id := uint64(1); id <= uint64(test.voters); id++ {
					s.members.ByID[id] = store.Member{ID: id, Instance: "x", Learner: test.learner && id == 1}
					up = append(up, id)
				}
				if test.learner {
					s.members.ByID[9] = store.Member{ID: 9, Instance: "x"}
					up = append(up, 9)
				}
				p := &fakeProposer{}
				if err := changerOf(s, p, up...).Remove(t.Context(), 2); err != nil || p.empty != test.empty || !s.Members().Removed[2] {
					t.Errorf("Remove() = %v, with %d entries behind the change, want nil and %d", err, p.empty, test.empty)
				}
			})
		})
	}
}

// An entry that is lost on its way to the leader is proposed again after an election timeout.
func TestALostConfirmationIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := three()
		s.members.ByID[4] = store.Member{ID: 4, Instance: "i4"}
		p := &fakeProposer{lost: 2}
		begun := time.Now()
		err := changerOf(s, p, 2, 3, 4).Remove(t.Context(), 4)
		if took := time.Since(begun); err != nil || p.empty != 3 || took < 2*electionTimeout || took > 3*electionTimeout {
			t.Errorf("Remove() = %v after %d entries and %v, want nil after 3 and two election timeouts", err, p.empty, took)
		}
		p.lost, p.empty = 100, 0
		ctx, cancel := context.WithTimeout(t.Context(), 3*electionTimeout)
		defer cancel()
		s.members.ByID[5] = store.Member{ID: 5, Instance: "i5"}
		s.members.ByID[6] = store.Member{ID: 6, Instance: "i6"}
		if err := changerOf(s, p, 2, 3, 5, 6).Remove(ctx, 6); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Remove() without a confirmation = %v, want that it is not known to be safe", err)
		}
		// A new member may start only after the answer, so an addition does not wait for long.
		p.empty = 0
		begun = time.Now()
		if _, err := changerOf(s, p, 2, 3, 5).Add(t.Context(), peerURLs("m9"), false); err != nil || time.Since(begun) != electionTimeout/2 {
			t.Errorf("Add() = %v after %v, want nil after half an election timeout", err, time.Since(begun))
		}
	})
}

// A removed member stops an election timeout after every majority of the remaining voters has acknowledged its removal.
func TestARemovedMemberStopsWhenItIsReleased(t *testing.T) {
	for _, test := range []struct {
		name   string
		remain []uint64
		acks   []uint64
		stops  bool
	}{
		{"the only other member", []uint64{2}, []uint64{2}, true},
		{"one of two others", []uint64{2, 3}, []uint64{3}, true},
		{"one of three others", []uint64{2, 3, 4}, []uint64{3}, false},
		{"the same one twice", []uint64{2, 3, 4}, []uint64{3, 3}, false},
		{"two of three others", []uint64{2, 3, 4}, []uint64{3, 4}, true},
		{"members that are not voters", []uint64{2, 3, 4}, []uint64{3, 9, 10}, false},
	} {
		for _, applied := range []bool{true, false} { // this member has applied its removal
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					members := registry(store.Member{ID: 9, Learner: true})
					for _, id := range test.remain {
						members.ByID[id] = store.Member{ID: id}
					}
					if !applied {
						members.ByID[1] = store.Member{ID: 1}
					}
					life := lifecycle.New(slog.New(slog.DiscardHandler))
					a := NewRemovalAcks(RemovalConfig{
						Self: 1, Registry: &fakeStore{members: members}, Life: life, Advice: "add it anew",
						TickInterval: electionTimeout / 10, ElectionTimeout: electionTimeout,
					})
					begun := time.Now()
					for _, id := range test.acks {
						a.RefusedBy(id)
					}
					select {
					case <-life.Stopping():
						if took := time.Since(begun); took < electionTimeout || took > electionTimeout+electionTimeout/10 {
							t.Errorf("it stops after %v, want an election timeout, and a tick at most", took)
						}
					case <-time.After(10 * electionTimeout):
					}
					if err := life.Err(); errors.Is(err, ErrRemoved) != test.stops {
						t.Errorf("Err() = %v, want ErrRemoved: %v", err, test.stops)
					}
					life.Stop()
					life.Wait()
				})
			})
		}
	}
}

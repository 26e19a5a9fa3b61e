package leaderlease

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// logOf makes a log after a snapshot at index, which is made of the entries before it: term
// and kind of each are as in "n1 c1", where c is a change, j is one that leaves a joint
// configuration and n is a normal entry. The first entry has index 1.
func logOf(tb testing.TB, entries string, snapshot, commit uint64) *raft.MemoryStorage {
	tb.Helper()
	s := raft.NewMemoryStorage()
	var log []*raftpb.Entry
	for i, f := range strings.Fields(entries) {
		e := &raftpb.Entry{Index: new(uint64(i + 1)), Term: new(uint64(f[1] - '0')), Type: raftpb.EntryNormal.Enum()}
		switch f[0] {
		case 'c':
			e.Type, e.Data = raftpb.EntryConfChange.Enum(), []byte("a change")
		case 'j':
			e.Type = raftpb.EntryConfChangeV2.Enum()
		}
		log = append(log, e)
	}
	if err := s.Append(log); err != nil {
		tb.Fatal(err)
	}
	if snapshot > 0 {
		if _, err := s.CreateSnapshot(snapshot, &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, nil); err != nil {
			tb.Fatal(err)
		}
		if err := s.Compact(snapshot); err != nil {
			tb.Fatal(err)
		}
	}
	if commit > 0 {
		_ = s.SetHardState(&raftpb.HardState{Term: new(uint64(9)), Vote: new(uint64(2)), Commit: new(commit)})
	}
	return s
}

// A change that a leader has proposed proves that all changes before it are committed.
func TestRecoverCommit(t *testing.T) {
	tests := []struct {
		name             string
		entries          string
		snapshot, commit uint64
		want             uint64
	}{
		{"an empty log", "", 0, 0, 0},
		{"no change", "n1 n1 n1", 0, 1, 1},
		{"one change", "n1 c1 n1", 0, 1, 1},
		{"two changes", "n1 c1 c1", 0, 1, 2},
		{"two changes, the first is known", "n1 c1 c1", 0, 2, 2},
		{"two changes, both are known", "n1 c1 c1", 0, 3, 3},
		{"two changes and entries between", "n1 c1 n1 n1 c1 n1", 0, 1, 2},
		{"three changes", "n1 c1 n1 c1 n1 c1", 0, 1, 4},
		{"three changes, the first is known", "n1 c1 n1 c1 n1 c1", 0, 2, 4},
		{"three changes, the second is known", "n1 c1 n1 c1 n1 c1", 0, 4, 4},
		{"known beyond the second", "n1 c1 n1 c1 n1 c1", 0, 5, 5},
		{"a joint change that is left", "n1 c1 j1", 0, 1, 2},
		{"the next change after a joint one", "n1 c1 j1 c1", 0, 1, 3},
		{"changes of two leaders", "n1 c1 n2 c2", 0, 1, 2},
		{"no hard state", "n1 c1 c1", 0, 0, 2},

		{"a part of Bootstrap's changes", "c1", 0, 0, 0},
		{"all of Bootstrap's changes", "c1 c1 c1", 0, 0, 0},
		{"Bootstrap's changes and a leader's entry", "c1 c1 c1 n2", 0, 0, 0},
		{"Bootstrap's changes and one change of a leader", "c1 c1 c1 n2 c2", 0, 0, 3},
		{"Bootstrap's changes and two changes of a leader", "c1 c1 c1 n2 c2 n2 c2", 0, 0, 5},
		{"Bootstrap's changes are known in part", "c1 c1 c1", 0, 1, 1},
		{"Bootstrap's changes are known in part, a leader has begun", "c1 c1 c1 n2", 0, 1, 1},
		{"Bootstrap's changes are known", "c1 c1 c1 n2 c2 c2", 0, 3, 5},
		{"Bootstrap's changes are known, and a leader's entry", "c1 c1 c1 n2 c2 c2", 0, 4, 5},

		{"a snapshot alone", "n1 n1", 2, 0, 0},
		{"one change after a snapshot", "n1 n1 c1", 2, 0, 0},
		{"two changes after a snapshot", "n1 n1 c1 j1", 2, 0, 3},
		{"two changes after a snapshot, commit index below it", "n1 n1 c1 j1", 2, 1, 3},
		{"two changes after a snapshot at a change", "n1 c1 j1 c1 n1", 2, 2, 3},
		{"two changes after a snapshot, of the next leader", "n1 n1 n2 c2 c2", 2, 2, 4},

		{"changes that no leader has proposed, of a later term", "n1 n1 c2 c2 c2", 0, 2, 2},
		{"the same, after a snapshot", "n1 n1 c2 c2 c2", 2, 2, 2},
		{"the same, with a leader's change after them", "n1 n1 c2 c2 n3 c3", 0, 2, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := logOf(t, tt.entries, tt.snapshot, tt.commit)
			for page := range uint64(2) { // as long as it may be, and one entry at once
				r := RecoverCommit(pagedStorage{s, page == 1})
				hard, conf, err := r.InitialState()
				if err != nil || hard.GetCommit() != tt.want {
					t.Errorf("InitialState() of %q = commit %d, %v, want %d", tt.entries, hard.GetCommit(), err, tt.want)
				}
				if tt.commit > 0 && (hard.GetTerm() != 9 || hard.GetVote() != 2) {
					t.Errorf("InitialState() = term %d, vote %d, want 9 and 2", hard.GetTerm(), hard.GetVote())
				}
				if n := len(conf.GetVoters()); (n == 3) != (tt.snapshot > 0) {
					t.Errorf("InitialState() = %d voters, want the snapshot's", n)
				}
				if again, _, err := RecoverCommit(r).InitialState(); err != nil || again.GetCommit() != tt.want {
					t.Errorf("recovered twice = commit %d, %v, want %d", again.GetCommit(), err, tt.want)
				}
			}
			if hard, _, _ := s.InitialState(); hard.GetCommit() != tt.commit {
				t.Errorf("the Storage beneath has commit index %d, want %d as before", hard.GetCommit(), tt.commit)
			}
		})
	}
}

// pagedStorage returns one entry at once, if paged.
type pagedStorage struct {
	raft.Storage
	paged bool
}

func (s pagedStorage) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if s.paged {
		maxSize = 0
	}
	return s.Storage.Entries(lo, hi, maxSize)
}

// A Storage that cannot be read is not taken for one without changes.
func TestRecoverCommitFailsIfTheLogCannotBeRead(t *testing.T) {
	failed := errors.New("the disk has failed")
	for _, call := range []string{"InitialState", "FirstIndex", "LastIndex", "Term", "Entries", "no entries"} {
		s := &failingStorage{Storage: logOf(t, "n1 c1 c1", 0, 1), call: call, err: failed}
		hard, _, err := RecoverCommit(s).InitialState()
		if err == nil || (call != "no entries" && !errors.Is(err, failed)) {
			t.Errorf("InitialState() where %s fails = commit %d, %v, want an error", call, hard.GetCommit(), err)
		}
	}
}

// failingStorage fails in one method.
type failingStorage struct {
	raft.Storage
	call string
	err  error
}

func (s *failingStorage) fails(call string) error {
	if s.call == call {
		return fmt.Errorf("%s: %w", call, s.err)
	}
	return nil
}

func (s *failingStorage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	if err := s.fails("InitialState"); err != nil {
		return nil, nil, err
	}
	return s.Storage.InitialState()
}

func (s *failingStorage) FirstIndex() (uint64, error) {
	if err := s.fails("FirstIndex"); err != nil {
		return 0, err
	}
	return s.Storage.FirstIndex()
}

func (s *failingStorage) LastIndex() (uint64, error) {
	if err := s.fails("LastIndex"); err != nil {
		return 0, err
	}
	return s.Storage.LastIndex()
}

func (s *failingStorage) Term(i uint64) (uint64, error) {
	if err := s.fails("Term"); err != nil {
		return 0, err
	}
	return s.Storage.Term(i)
}

func (s *failingStorage) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if err := s.fails("Entries"); err != nil || s.call == "no entries" {
		return nil, err
	}
	return s.Storage.Entries(lo, hi, maxSize)
}

// A process that is killed between the snapshot and the HardState of one Ready starts again:
// raft would panic at the commit index, which is before the log.
func TestATornSnapshotIsRecovered(t *testing.T) {
	s := logOf(t, "n1 n1 n1 n1", 4, 2)
	rc, cfg := pairConfig(t, s)
	node, _, err := NewRawNode(rc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if c := node.BasicStatus().GetCommit(); c != 4 {
		t.Errorf("commit index %d after a start, want 4, the snapshot's", c)
	}
}

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
			if isChange(e) {
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
				found = found || isChange(e) && e.GetIndex() > committed
				return true
			})
		})
		if found {
			return
		}
	}
	t.Error("in 30 groups the newest change of each log was committed at once, want one that was not")
}

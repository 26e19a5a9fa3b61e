package leaderlease

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease/clock"
)

// pairConfig is puppetConfig in the two parts that the constructors of nodes take.
func pairConfig(tb testing.TB, s raft.Storage) (*raft.Config, Config) {
	tb.Helper()
	cfg := puppetConfig(tb)
	rc := cfg.Raft
	rc.Storage, rc.Applied, rc.Logger = s, 0, quietLogger{}
	cfg.Raft = nil
	return rc, cfg
}

// twoChanges is the log of a follower that was killed between the entries and the HardState
// of a Ready with two changes, at 3 and 4, of the term 9.
func twoChanges(tb testing.TB) *raft.MemoryStorage {
	tb.Helper()
	s := logOf(tb, "n1 n1", 1, 2)
	log := []*raftpb.Entry{{Index: new(uint64(3)), Term: new(uint64(1))}, {Index: new(uint64(4)), Term: new(uint64(1))}}
	for i, id := range []uint64{4, 5} {
		data, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(id)})
		if err != nil {
			tb.Fatal(err)
		}
		log[i].Type, log[i].Data = raftpb.EntryConfChange.Enum(), data
	}
	if err := s.Append(log); err != nil {
		tb.Fatal(err)
	}
	return s
}

// A Lease that is off would not keep the node from being elected, so there is none.
func TestNewRefusesACommitIndexBelowWhatTheLogProves(t *testing.T) {
	rc, cfg := pairConfig(t, twoChanges(t))
	cfg.Raft = rc
	_, err := New(cfg)
	if misuse, ok := errors.AsType[*MisuseError](err); !ok || !strings.Contains(misuse.Rule, "commit index 2") || !strings.Contains(misuse.Rule, "change at 3") {
		t.Errorf("New() = %v, want a *MisuseError with the commit index 2 and the change at 3", err)
	}
	inner := raft.RestartNode(rc)
	defer inner.Stop()
	if _, _, err := Wrap(inner, cfg); err == nil {
		t.Error("Wrap() = nil, want the error of New")
	}
	rc.Storage = RecoverCommit(rc.Storage)
	if l, err := New(cfg); err != nil || l.commit.Load() != 3 {
		t.Errorf("New() with RecoverCommit = %v, want a Lease with commit index 3", err)
	}
}

// Raft and the Lease start with the recovered commit index, and the node does not campaign
// before it has applied what is committed.
func TestNewRawNodeRecoversTheCommitIndex(t *testing.T) {
	s := twoChanges(t)
	rc, cfg := pairConfig(t, s)
	before := *rc
	node, l, err := NewRawNode(rc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := node.BasicStatus().GetCommit(); got != 3 || l.commit.Load() != 3 {
		t.Errorf("commit index = %d in raft and %d in the Lease, want 3", got, l.commit.Load())
	}
	_ = node.Campaign()
	if got := node.BasicStatus().RaftState; got != raft.StateFollower {
		t.Errorf("after Campaign() with a change that is not applied: %v, want a follower", got)
	}
	if rc.Storage != before.Storage || l.cfg.Raft == rc {
		t.Error("NewRawNode has changed the raft.Config of its caller, or keeps it")
	}
}

func TestNodesRefuseWhatRaftPanicsOn(t *testing.T) {
	peers := []raft.Peer{{ID: 1}}
	start := func(peers []raft.Peer) func(*raft.Config, Config) error {
		return func(rc *raft.Config, cfg Config) error { _, _, err := StartNode(rc, cfg, peers); return err }
	}
	restart := func(rc *raft.Config, cfg Config) error { _, _, err := RestartNode(rc, cfg); return err }
	raw := func(rc *raft.Config, cfg Config) error { _, _, err := NewRawNode(rc, cfg); return err }
	both := func(rc *raft.Config, cfg *Config) { cfg.Raft = rc }
	tests := []struct {
		name  string
		call  func(*raft.Config, Config) error
		amend func(*raft.Config, *Config)
		want  string
	}{
		{"StartNode, two raft.Configs", start(peers), both, "leave Config.Raft nil"},
		{"RestartNode, two raft.Configs", restart, both, "leave Config.Raft nil"},
		{"NewRawNode, two raft.Configs", raw, both, "leave Config.Raft nil"},
		{"StartNode, no peers", start(nil), nil, "use RestartNode"},
		{"StartNode, a log that is not empty", start(peers), nil, "ends at index 4, with a HardState of term 9: use RestartNode"},
		{"StartNode, a vote without entries", start(peers), func(rc *raft.Config, _ *Config) {
			s := raft.NewMemoryStorage()
			_ = s.SetHardState(&raftpb.HardState{Term: new(uint64(5)), Vote: new(uint64(3))})
			rc.Storage = s
		}, "ends at index 0, with a HardState of term 5: use RestartNode"},
		{"NewRawNode, Applied above the commit index", raw, func(rc *raft.Config, _ *Config) { rc.Applied = 4 }, "Applied 4 is above the commit index 3"},
		{"RestartNode, no Storage", restart, func(rc *raft.Config, _ *Config) { rc.Storage = nil }, "Raft.Storage is missing"},
		{"NewRawNode, no PreVote", raw, func(rc *raft.Config, _ *Config) { rc.PreVote = false }, "Raft.PreVote must be on"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rc, cfg := pairConfig(t, twoChanges(t))
			if tt.amend != nil {
				tt.amend(rc, &cfg)
			}
			if err := tt.call(rc, cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q in it", err, tt.want)
			}
		})
	}
	if _, _, err := NewRawNode(nil, Config{TickInterval: 100 * ms}); err == nil || !strings.Contains(err.Error(), "Raft is missing") {
		t.Errorf("NewRawNode(nil, …) = %v, want that Raft is missing", err)
	}
}

// A group of one starts, serves a read under its lease, stops, and does the same again after
// its hold.
func TestStartNodeAndRestartNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := raft.NewMemoryStorage()
		for _, begin := range []func(*raft.Config, Config) (raft.Node, *Lease, error){
			func(rc *raft.Config, cfg Config) (raft.Node, *Lease, error) {
				return StartNode(rc, cfg, []raft.Peer{{ID: 1}})
			},
			RestartNode,
		} {
			rc, cfg := pairConfig(t, s)
			cfg.Clock = clock.Runtime()
			node, l, err := begin(rc, cfg)
			if err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				runNode(t, node, l, s, cfg.TickInterval, stop)
			}()
			events, end := l.Watch()
			for e := range events {
				if e.Held {
					break
				}
			}
			end()
			if r, err := l.Read(t.Context()); err != nil || r.Path != PathLease {
				t.Errorf("Read() = %+v, %v, want one under the lease", r, err)
			}
			node.Stop()
			close(stop)
			<-ended
		}
	})
}

// runNode is the loop around a raft.Node of a group without others.
func runNode(t *testing.T, node raft.Node, l *Lease, s *raft.MemoryStorage, tick time.Duration, stop <-chan struct{}) {
	t.Helper()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			node.Tick()
		case rd := <-node.Ready():
			if err := s.Append(rd.Entries); err != nil {
				t.Error(err)
			}
			if !raft.IsEmptyHardState(rd.HardState) {
				_ = s.SetHardState(rd.HardState)
			}
			for _, e := range rd.CommittedEntries {
				if changesConf(e) {
					var cc raftpb.ConfChange
					if err := proto.Unmarshal(e.GetData(), &cc); err != nil {
						t.Error(err)
					}
					if cs := node.ApplyConfChange(&cc); !slices.Equal(cs.GetVoters(), []uint64{1}) {
						t.Errorf("ApplyConfChange() = %v, want voter 1", cs)
					}
				}
				l.Applied(e.GetIndex())
			}
			node.Advance()
		case <-stop:
			return
		}
	}
}

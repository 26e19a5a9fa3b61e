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
	"github.com/leaderlease/go/leaderlease/core"
)

// badStorage fails one of the calls that New makes.
type badStorage struct {
	*raft.MemoryStorage
	state, first, last error
}

func (s *badStorage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	if s.state != nil {
		return nil, nil, s.state
	}
	return s.MemoryStorage.InitialState()
}

func (s *badStorage) FirstIndex() (uint64, error) {
	if s.first != nil {
		return 0, s.first
	}
	return s.MemoryStorage.FirstIndex()
}

func (s *badStorage) LastIndex() (uint64, error) {
	if s.last != nil {
		return 0, s.last
	}
	return s.MemoryStorage.LastIndex()
}

// promiseFile is a PromiseStore that may fail.
type promiseFile struct {
	kept       time.Duration
	load, save error
	saves      int
}

func (f *promiseFile) LoadLongestPromise() (time.Duration, error) { return f.kept, f.load }

func (f *promiseFile) SaveLongestPromise(d time.Duration) error {
	if f.save == nil {
		f.kept = d
		f.saves++
	}
	return f.save
}

func TestNewPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken on purpose")
	tests := []struct {
		name  string
		amend func(*Config)
		want  string
	}{
		{"hard state", func(c *Config) {
			c.Raft.Storage = &badStorage{MemoryStorage: bootstrapped(t, 1), state: broken}
		}, "read initial state"},
		{"first index", func(c *Config) {
			c.Raft.Storage = &badStorage{MemoryStorage: bootstrapped(t, 1), first: broken}
		}, "read first index"},
		{"last index", func(c *Config) {
			c.Raft.Storage = &badStorage{MemoryStorage: bootstrapped(t, 1), last: broken}
		}, "read last index"},
		{"saved promise", func(c *Config) { c.Promises = &promiseFile{load: broken} }, "load the longest promise"},
		{"promise to save", func(c *Config) { c.Promises = &promiseFile{save: broken} }, "save the longest promise 900ms"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cfg := puppetConfig(t)
			tc.amend(&cfg)
			l, err := New(cfg)
			if l != nil || !errors.Is(err, broken) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("New() = %v, %v, want nil and %q, wrapping the cause", l, err, tc.want)
			}
		})
	}
	for _, reading := range []int64{0, -1, int64(core.Forever)} {
		cfg := puppetConfig(t)
		clock := &handClock{}
		clock.Advance(time.Duration(reading))
		cfg.Clock = clock
		if l, err := New(cfg); l != nil || err == nil || !strings.Contains(err.Error(), "clock reads") {
			t.Errorf("New() with a clock that reads %d = %v, %v, want nil and an error about it", reading, l, err)
		}
	}
}

// The longest promise is durable before any is made, and a start never shortens it.
func TestNewSavesTheLongestPromise(t *testing.T) {
	tests := []struct {
		name              string
		kept, want, holds time.Duration
		restarted         bool
	}{
		{"first start", 0, 900 * ms, 0, false},
		{"the same again, for it may not be durable yet", 900 * ms, 900 * ms, 900 * ms, true},
		{"a longer one is kept, and held for", 5 * time.Second, 5 * time.Second, 5 * time.Second, true},
		{"a shorter one is replaced", 500 * ms, 900 * ms, 900 * ms, true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			file := &promiseFile{kept: tc.kept}
			p := newPuppet(t, func(c *Config) {
				c.Promises = file
				if !tc.restarted {
					return
				}
				s := bootstrapped(t, 1, 2, 3)
				if err := s.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
					t.Fatal(err)
				}
				c.Raft.Storage = s
			})
			if file.kept != tc.want || file.saves != 1 {
				t.Errorf("New() left %v in the promise store after %d saves, want %v after 1", file.kept, file.saves, tc.want)
			}
			if hold := p.Info().Promise.Hold; hold != tc.holds {
				t.Errorf("Info().Promise.Hold = %v, want %v", hold, tc.holds)
			}
		})
	}
}

// What the state machine holds at a start is what the embedder tells raft, and
// never more than is committed.
func TestNewKnowsWhatIsApplied(t *testing.T) {
	for _, tc := range []struct{ told, want uint64 }{{1, 1}, {3, 3}, {5, 5}, {6, 5}} {
		p := newPuppet(t, func(c *Config) {
			s := bootstrapped(t, 1, 2, 3)
			for i := range uint64(6) {
				if err := s.Append([]*raftpb.Entry{{Term: new(uint64(1)), Index: new(i + 2)}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(5))}); err != nil {
				t.Fatal(err)
			}
			c.Raft.Storage, c.Raft.Applied = s, tc.told
		})
		if s := p.Info(); s.Applied != tc.want || s.Commit != 5 || s.Term != 1 {
			t.Errorf("Info() with Raft.Applied %d = applied %d, commit %d, term %d, want %d, 5, 1", tc.told, s.Applied, s.Commit, s.Term, tc.want)
		}
	}
}

// A leader that was deposed before the restart is granted nothing after it.
func TestNewKnowsItsTerm(t *testing.T) {
	for _, tc := range []struct{ term, promises uint64 }{{4, 0}, {5, 1}, {6, 1}} {
		p := newPuppet(t, func(c *Config) {
			s := bootstrapped(t, 1, 2, 3)
			if err := s.SetHardState(&raftpb.HardState{Term: new(uint64(5)), Commit: new(uint64(1))}); err != nil {
				t.Fatal(err)
			}
			c.Raft.Storage = s
		})
		p.term = tc.term
		m := p.message(raftpb.MsgHeartbeat, 2, 1)
		attachProbe(m, core.Probe{Sent: core.Instant(time.Minute), Duration: 900 * ms})
		p.Incoming(m)
		if s := p.Stats(); s.Promises != tc.promises || s.RefusedProbes != 1-tc.promises {
			t.Errorf("probe of term %d at a node that was in term 5: %d promises, %d refused, want %d", tc.term, s.Promises, s.RefusedProbes, tc.promises)
		}
	}
}

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
	if misuse, ok := errors.AsType[*MisuseError](err); !ok || !strings.Contains(misuse.Text, "commit index 2") || !strings.Contains(misuse.Text, "change at 3") {
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
		{"StartNode, no peers", start(nil), nil, "uses RestartNode"},
		{"StartNode, a log that is not empty", start(peers), nil, "ends at index 4, and its HardState has term 9 (use RestartNode"},
		{"StartNode, a vote without entries", start(peers), func(rc *raft.Config, _ *Config) {
			s := raft.NewMemoryStorage()
			_ = s.SetHardState(&raftpb.HardState{Term: new(uint64(5)), Vote: new(uint64(3))})
			rc.Storage = s
		}, "ends at index 0, and its HardState has term 5 (use RestartNode"},
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
				if isChange(e) {
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

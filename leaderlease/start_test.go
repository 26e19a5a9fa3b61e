package leaderlease

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

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

func (f *promiseFile) LoadMaxPromise() (time.Duration, error) { return f.kept, f.load }

func (f *promiseFile) SaveMaxPromise(d time.Duration) error {
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

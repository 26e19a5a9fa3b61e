package leaderlease

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// filled is a configuration in which everything is set and right.
func filled(tb testing.TB) Config {
	tb.Helper()
	cfg := puppetConfig(tb).WithDefaults()
	if err := cfg.Validate(); err != nil {
		tb.Fatalf("Validate() of the base configuration: %v", err)
	}
	return cfg
}

// Each row changes one thing to just beyond its bound, and says which reason,
// with which numbers, must be given; ok changes it to just within.
func TestValidateRefusesEachBound(t *testing.T) {
	tests := []struct {
		name    string
		bad, ok func(*Config)
		want    []string
	}{
		{
			"tick interval",
			func(c *Config) { c.TickInterval = 0 },
			func(c *Config) { c.TickInterval = 100 * ms },
			[]string{"TickInterval 0s must be positive"},
		},
		{
			"duration is not positive",
			func(c *Config) { c.Duration, c.MaxClockSkew = 0, -1 },
			func(c *Config) { c.Duration, c.MaxClockSkew = 300*ms, 60*ms },
			[]string{"Duration 0s must be positive"},
		},
		{
			"skew is not positive",
			func(c *Config) { c.MaxClockSkew = 0 },
			func(c *Config) { c.MaxClockSkew, c.MaxDriftPPM = 1, 0 },
			[]string{"MaxClockSkew 0s must be positive"},
		},
		{
			"skew reaches duration",
			func(c *Config) { c.MaxClockSkew = 900 * ms },
			func(c *Config) { c.MaxClockSkew = 700 * ms },
			[]string{"MaxClockSkew 900ms must be below Duration 900ms"},
		},
		{
			"skew below the drift bound",
			func(c *Config) { c.MaxClockSkew = c.driftBound() - 1 },
			func(c *Config) { c.MaxClockSkew = c.driftBound() },
			[]string{"MaxClockSkew 138.461026ms is below 138.461027ms", "MaxDriftPPM 83333", "900ms"},
		},
		{
			"drift is negative",
			func(c *Config) { c.MaxDriftPPM = -1 },
			func(c *Config) { c.MaxDriftPPM = 0 },
			[]string{"MaxDriftPPM -1 must be in [0, 1000000)"},
		},
		{
			"drift of a clock that stands still",
			func(c *Config) { c.MaxDriftPPM = 1e6 },
			func(c *Config) { c.MaxDriftPPM = 100_000 },
			[]string{"MaxDriftPPM 1000000 must be in [0, 1000000)"},
		},
		{
			"promise below duration",
			func(c *Config) { c.MaxPromise = 900*ms - 1 },
			func(c *Config) { c.MaxPromise = 900 * ms },
			[]string{"MaxPromise 899.999999ms is below Duration 900ms"},
		},
		{
			"no clock",
			func(c *Config) { c.Clock = nil },
			func(c *Config) { c.Clock = &handClock{} },
			[]string{"Clock is missing"},
		},
		{
			"duration delays fail-over",
			func(c *Config) { c.Duration, c.MaxPromise = 900*ms+1, time.Second },
			func(c *Config) { c.Duration, c.MaxPromise, c.AllowLongDuration = 900*ms+1, time.Second, true },
			[]string{"Duration 900.000001ms is above 900ms", "AllowLongDuration"},
		},
		{
			"less than two heartbeats",
			func(c *Config) { c.MaxClockSkew = 700*ms + 1 },
			func(c *Config) { c.MaxClockSkew = 700 * ms },
			[]string{"Duration 900ms less MaxClockSkew 700.000001ms is below two heartbeats, 200ms"},
		},
		{
			"no raft config",
			func(c *Config) { c.Raft = nil },
			func(*Config) {},
			[]string{"Raft is missing"},
		},
		{
			"raft ID 0",
			func(c *Config) { c.Raft.ID = raft.None },
			func(c *Config) { c.Raft.ID = 1 },
			[]string{"Raft.ID 0 is reserved"},
		},
		{
			"raft ID of a local thread",
			func(c *Config) { c.Raft.ID = raft.LocalAppendThread },
			func(c *Config) { c.Raft.ID = raft.LocalApplyThread - 1 },
			[]string{"Raft.ID 18446744073709551615 is reserved"},
		},
		{
			"no storage",
			func(c *Config) { c.Raft.Storage = nil },
			func(c *Config) { c.Raft.Storage = raft.NewMemoryStorage() },
			[]string{"Raft.Storage is missing"},
		},
		{
			"heartbeat tick is not positive",
			func(c *Config) { c.Raft.HeartbeatTick = 0 },
			func(c *Config) { c.Raft.HeartbeatTick = 1 },
			[]string{"Raft.ElectionTick 10 must be above Raft.HeartbeatTick 0"},
		},
		{
			"election tick reaches heartbeat tick",
			func(c *Config) { c.Raft.HeartbeatTick = 10 },
			func(c *Config) { c.Raft.HeartbeatTick = 3 },
			[]string{"Raft.ElectionTick 10 must be above Raft.HeartbeatTick 10"},
		},
		{
			"pre-vote off",
			func(c *Config) { c.Raft.PreVote = false },
			func(c *Config) { c.Raft.PreVote = true },
			[]string{"Raft.PreVote must be on"},
		},
		{
			"check quorum off",
			func(c *Config) { c.Raft.CheckQuorum = false },
			func(c *Config) { c.Raft.CheckQuorum = true },
			[]string{"Raft.CheckQuorum must be on"},
		},
		{
			"step-down on removal off",
			func(c *Config) { c.Raft.StepDownOnRemoval = false },
			func(c *Config) { c.Raft.StepDownOnRemoval = true },
			[]string{"Raft.StepDownOnRemoval must be on"},
		},
		{
			"raft's own lease reads",
			func(c *Config) { c.Raft.ReadOnlyOption = raft.ReadOnlyLeaseBased },
			func(c *Config) { c.Raft.ReadOnlyOption = raft.ReadOnlySafe },
			[]string{"Raft.ReadOnlyOption must be ReadOnlySafe"},
		},
		{
			"conf change validation off",
			func(c *Config) { c.Raft.DisableConfChangeValidation = true },
			func(c *Config) { c.Raft.DisableConfChangeValidation = false },
			[]string{"Raft.DisableConfChangeValidation must be off"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			bad, ok := filled(t), filled(t)
			tc.bad(&bad)
			tc.ok(&ok)
			err := bad.Validate()
			if err == nil {
				t.Fatalf("Validate() = nil, want %q", tc.want)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Validate() = %q, want it to say %q", err, want)
				}
			}
			if err := ok.Validate(); err != nil {
				t.Errorf("Validate() within the bound = %v, want nil", err)
			}
		})
	}
}

// What is wrong only because something else is, is not said.
func TestValidateReportsNoConsequences(t *testing.T) {
	lines := func(amend func(*Config)) int {
		cfg := puppetConfig(t)
		amend(&cfg)
		return strings.Count(cfg.WithDefaults().Validate().Error(), "\n") + 1
	}
	for name, amend := range map[string]func(*Config){
		"Raft":          func(c *Config) { c.Raft = nil },
		"TickInterval":  func(c *Config) { c.TickInterval = 0 },
		"negative tick": func(c *Config) { c.TickInterval = -1 },
		"ElectionTick":  func(c *Config) { c.Raft.ElectionTick = 0 },
		"Duration":      func(c *Config) { c.Duration = -1 },
		"MaxClockSkew":  func(c *Config) { c.MaxClockSkew = -1 },
		"MaxDriftPPM":   func(c *Config) { c.MaxDriftPPM = -1 },
	} {
		if n := lines(amend); n != 1 {
			t.Errorf("%s: Validate() reports %d errors, want the one", name, n)
		}
	}
	if n := lines(func(c *Config) { *c = Config{} }); n != 2 {
		t.Errorf("Validate() of nothing reports %d errors, want 2: Raft and TickInterval", n)
	}
}

// An operator who mends one field at a time needs one attempt, not six.
func TestValidateReportsEverything(t *testing.T) {
	cfg := filled(t)
	cfg.TickInterval = -time.Second
	cfg.MaxClockSkew = time.Minute
	cfg.MaxPromise = 0
	cfg.Clock = nil
	cfg.Raft.PreVote, cfg.Raft.CheckQuorum, cfg.Raft.Storage = false, false, nil
	before := cfg

	err := cfg.Validate()
	if err == nil {
		t.Fatal("Validate() = nil")
	}
	for _, want := range []string{
		"leaderlease: invalid config", "TickInterval -1s", "MaxClockSkew 1m0s", "MaxPromise 0s", "Clock is missing", "PreVote", "CheckQuorum", "Raft.Storage is missing",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %q, want it to say %q", err, want)
		}
	}
	if !reflect.DeepEqual(cfg, before) {
		t.Errorf("Validate() changed the configuration to %+v", cfg)
	}
	if l, err := New(cfg); l != nil || err == nil || !strings.Contains(err.Error(), "CheckQuorum") {
		t.Errorf("New() = %v, %v, want nil and what Validate says", l, err)
	}
}

func TestWithDefaults(t *testing.T) {
	given := puppetConfig(t)
	given.Clock = nil
	before := given
	got := given.WithDefaults()
	if !reflect.DeepEqual(given, before) {
		t.Errorf("WithDefaults() changed its receiver to %+v", given)
	}
	if got.Duration != 900*ms || got.MaxClockSkew != 180*ms || got.MaxPromise != 900*ms || got.MaxDriftPPM != 83_333 {
		t.Errorf("WithDefaults() = duration %v, skew %v, promise %v, drift %d, want 900ms, 180ms, 900ms, 83333",
			got.Duration, got.MaxClockSkew, got.MaxPromise, got.MaxDriftPPM)
	}
	if got.Clock == nil || got.Logger == nil {
		t.Errorf("WithDefaults() = clock %v, logger %v, want both", got.Clock, got.Logger)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("Validate() of the defaults = %v", err)
	}

	chosen := filled(t)
	chosen.Duration, chosen.MaxClockSkew, chosen.MaxPromise, chosen.MaxDriftPPM = 800*ms, 170*ms, time.Second, 50_000
	if got := chosen.WithDefaults(); !reflect.DeepEqual(got, chosen) {
		t.Errorf("WithDefaults() of a full configuration = %+v, want it unchanged, %+v", got, chosen)
	}
	if got := (Config{}).WithDefaults(); got.Duration != 0 || got.Validate() == nil {
		t.Errorf("WithDefaults() of nothing = duration %v and valid, want no guess without a raft config", got.Duration)
	}
}

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

// The longest promise is durable before any is made, and is never shortened.
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

package leaderlease

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
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
			[]string{"Duration 900ms − MaxClockSkew 700.000001ms is below two heartbeats, 200ms"},
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

// An operator needs one attempt, not six.
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

package settings

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// etcdFlags returns etcd's flags with their defaults.
func etcdFlags(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("testdata/etcd-3.7-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	flags := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			flags[name] = value
		}
	}
	if len(flags) < 100 {
		t.Fatalf("etcd has %d flags, want more than 100", len(flags))
	}
	return flags
}

// otherDefaults are defaults that differ from etcd's on purpose.
var otherDefaults = map[string]string{
	"data-dir":            "default.kvnode", // another program's data
	"heartbeat-interval":  "50",             // a leader that dies is replaced in a quarter of a second
	"host-whitelist":      "",               // no web page may take a name of its own
	"quota-backend-bytes": "2147483648",     // what etcd means by 0

	"watch-progress-notify-interval": "10m0s", // the same
}

// Each flag of etcd is honoured with etcd's default, ignored, or refused with a
// reason.
func TestEveryFlagOfEtcdIsKnown(t *testing.T) {
	defaults, err := Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range etcdFlags(t) {
		s, ok := byName[name]
		if !ok {
			t.Errorf("the table has no %s", name)
			continue
		}
		if other, ok := otherDefaults[name]; ok {
			want = other
		}
		got := s.etcd
		if s.honoured() {
			got = s.field(&defaults.Config).String()
		}
		if got != want {
			t.Errorf("default of %s = %q, want %q", name, got, want)
		}
	}
}

// Each row is honoured, ignored or refused, and has a complete help text.
func TestTheTableIsComplete(t *testing.T) {
	seen := make(map[string]bool)
	for i := range table {
		s := &table[i]
		if seen[s.name] {
			t.Errorf("%s is twice in the table", s.name)
		}
		seen[s.name] = true
		fates := 0
		for _, is := range []bool{s.honoured(), s.ignored != "", s.refused != "", s.now != ""} {
			if is {
				fates++
			}
		}
		if fates != 1 {
			t.Errorf("%s is %d of honoured, ignored, refused and renamed, want one", s.name, fates)
		}
		if s.honoured() != (s.usage != "" && s.topic != "") {
			t.Errorf("%s: usage %q, topic %q, want both if it is honoured", s.name, s.usage, s.topic)
		}
	}
}

// etcd's default of an unsupported setting is accepted. Any other value is refused, or reported
// to have no effect.
func TestWhatIsNotHonoured(t *testing.T) {
	for i := range table {
		s := &table[i]
		if s.honoured() || s.now != "" {
			continue
		}
		if l, err := Load(map[string]string{s.name: s.etcd}, nil); err != nil || len(l.Warnings) > 0 {
			t.Errorf("--%s %q = %v, warnings %q, want silence: it is etcd's default", s.name, s.etcd, err, l.Warnings)
		}
		odd := "97"
		if s.bool {
			odd = map[string]string{"true": "f", "false": "1"}[s.etcd]
		}
		l, err := Load(map[string]string{s.name: odd}, nil)
		if s.refused != "" {
			if err == nil || !strings.Contains(err.Error(), "--"+s.name) || !strings.Contains(err.Error(), s.refused) {
				t.Errorf("--%s %q = %v, want it refused because %s", s.name, odd, err, s.refused)
			}
			continue
		}
		if err != nil || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], s.ignored) {
			t.Errorf("--%s %q = %v, warnings %q, want one warning with %s", s.name, odd, err, l.Warnings, s.ignored)
		}
	}
}

func TestSpellingsOfADefault(t *testing.T) {
	for name, text := range map[string]string{
		"pre-vote": "1", "force-new-cluster": "F", "corrupt-check-time": "0", "compact-hash-check-time": "60s", "raft-read-timeout": "5000ms",
	} {
		if l, err := Load(map[string]string{name: text}, nil); err != nil || len(l.Warnings) > 0 {
			t.Errorf("--%s %s = %v, %q, want it taken for etcd's default", name, text, err, l.Warnings)
		}
	}
}

func TestFeatureGates(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		"LeaseCheckpoint=true":              "",
		"AllAlpha=false,AllBeta=true":       "",
		"InitialCorruptCheck=false":         "",
		"InitialCorruptCheck=true":          "",
		"LeaseCheckpoint":                   `feature LeaseCheckpoint: "" must be true or false`,
		"leasecheckpoint=true":              `there is no feature "leasecheckpoint"; did you mean LeaseCheckpoint?, only`,
		"LeaseCheckpoint=true, Warp=true":   `there is no feature "Warp"`,
		"TxnModeWriteWithSharedBuffer=nope": "must be true or false",
		"AllAlpha=true":                     "cannot be on because it stands for some",
		"LeaseCheckpointPersist=true":       "needs LeaseCheckpoint=true",
		"LeaseCheckpointPersist=true,LeaseCheckpoint=true": "",
		"PriorityRequest=true,PriorityRequest=false":       "feature PriorityRequest is said to be both",
	} {
		_, err := Load(map[string]string{"feature-gates": text}, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("--feature-gates %q = %v, want %q", text, err, want)
		}
	}
}

// A feature is supported, or refused, or reported to have no effect. Its default is accepted silently.
func TestFeaturesThatHaveNoEffect(t *testing.T) {
	for name, g := range features {
		for _, on := range []bool{true, false} {
			if on && (g.refused != "" || name == leaseCheckpointPersist) {
				continue
			}
			l, err := Load(map[string]string{featureFlag: fmt.Sprintf("%s=%v", name, on)}, nil)
			want := g.ignored != "" && on != g.etcd
			if err != nil || (len(l.Warnings) == 1) != want || want && !strings.Contains(l.Warnings[0], g.ignored) {
				t.Errorf("--feature-gates %s=%v = %v, warnings %q, want a warning: %v", name, on, err, l.Warnings, want)
			}
		}
	}
	for text, want := range map[string]time.Duration{"": 0, "LeaseCheckpoint=false": 0, "LeaseCheckpoint=true": 5 * time.Minute} {
		if l, err := Load(map[string]string{featureFlag: text}, nil); err != nil || l.Server.Node.TTLCheckpoint != want {
			t.Errorf("--feature-gates %q: TTLCheckpoint = %v, %v, want %v", text, l.Server.Node.TTLCheckpoint, err, want)
		}
	}
}

package settings

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fate is what becomes of a flag of etcd.
type fate struct{ name, fate, value string }

// fates returns a line of testdata for each flag in the help of etcd.
func fates(t *testing.T) (all []fate) {
	t.Helper()
	data, err := os.ReadFile("testdata/etcd-3.7-fates.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(columns) == 3 {
			all = append(all, fate{columns[0], columns[1], columns[2]})
		}
	}
	return all
}

// ways are how a setting is given to Load: each has to come to the same end.
var ways = map[string]func(t *testing.T, name, value string) (*Loaded, error){
	"flag": func(_ *testing.T, name, value string) (*Loaded, error) {
		return Load(map[string]string{name: value}, nil)
	},
	"etcd's variable": func(_ *testing.T, name, value string) (*Loaded, error) {
		return Load(nil, []string{byName[name].envs()[1] + "=" + value})
	},
	"our variable": func(_ *testing.T, name, value string) (*Loaded, error) {
		return Load(nil, []string{byName[name].envs()[0] + "=" + value})
	},
	"file": func(t *testing.T, name, value string) (*Loaded, error) {
		t.Helper()
		return Load(map[string]string{configFile: file(t, name+": "+strconv.Quote(value)+"\n")}, nil)
	},
}

// Each flag of etcd, from each source, takes effect, is refused with the reason, or is
// reported to have no effect.
func TestTheFateOfEachFlagOfEtcd(t *testing.T) {
	listed := make(map[string]bool)
	for _, f := range fates(t) {
		listed[f.name] = true
		s, ok := byName[f.name]
		if !ok {
			t.Errorf("the table has no %s", f.name)
			continue
		}
		for way, load := range ways {
			l, err := load(t, f.name, f.value)
			if got := becameOf(s, l, err, f.value); got != f.fate {
				t.Errorf("%s %q by %s is %q, want %q: %v, warnings %q", f.name, f.value, way, got, f.fate, err, l.Warnings)
			}
		}
	}
	for name := range etcdFlags(t) {
		if !listed[name] {
			t.Errorf("testdata does not say what becomes of %s", name)
		}
	}
}

// becameOf works out from what Load returned what became of a value.
func becameOf(s *setting, l *Loaded, err error, value string) string {
	said := strings.Join(l.Warnings, "\n")
	switch {
	case s.honoured() && s.field(&l.Config).String() == value:
		return "honoured" // whether or not other settings are missing now
	case s.refused != "" && err != nil && strings.Contains(err.Error(), "--"+s.name) && strings.Contains(err.Error(), s.refused):
		return "refused"
	case s.ignored != "" && err == nil && strings.Contains(said, "--"+s.name) && strings.Contains(said, s.ignored):
		return "no effect"
	default:
		return "passed over in silence"
	}
}

// Files of etcd have sections that its flags do not have.
func TestSectionsOfEtcdsFile(t *testing.T) {
	_, err := Load(map[string]string{configFile: file(t, "socket-options:\n  reuse-port: true\ndiscovery-config:\n  endpoints: [a]\n")}, nil)
	for _, want := range []string{`--socket-reuse-port "true" is refused because`, `--discovery-endpoints "a" is refused because`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load() = %v, want %s", err, want)
		}
	}
}

// What etcd up to 3.6 called experimental means what its new name means.
func TestOldNames(t *testing.T) {
	const progress = "experimental-watch-progress-notify-interval"
	for way, load := range ways {
		l, err := load(t, progress, "1m37s")
		if err != nil || l.Server.API.WatchProgressInterval != 97*time.Second || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "--"+progress+" is an old name") {
			t.Errorf("%s by %s = %v, %v, warnings %q, want 1m37s and a warning", progress, way, l.Server.API.WatchProgressInterval, err, l.Warnings)
		}
		l, err = load(t, "experimental-enable-lease-checkpoint", "true")
		if err != nil || l.Server.Node.TTLCheckpoint != ttlCheckpoint {
			t.Errorf("lease checkpoints by %s = %v, %v, want %v", way, l.Server.Node.TTLCheckpoint, err, ttlCheckpoint)
		}
		l, err = load(t, "experimental-corrupt-check-time", "1m")
		if err != nil || l.Server.CorruptCheckTime != time.Minute {
			t.Errorf("corrupt checks by %s = %v, %v, want one a minute", way, l.Server.CorruptCheckTime, err)
		}
		for name, want := range map[string][2]bool{
			"experimental-initial-corrupt-check": {true, false}, "experimental-compact-hash-check-enabled": {false, true},
		} {
			l, err = load(t, name, "true")
			if got := [2]bool{l.Server.InitialCorruptCheck, l.Server.CompactHashCheck}; err != nil || got != want {
				t.Errorf("%s by %s = %v, %v, want that one alone", name, way, got, err)
			}
		}
	}
	if err := command(t).ParseFlags([]string{"--experimental-enable-lease-checkpoint", "--experimental-memory-mlock", "--guardian"}); err != nil {
		t.Errorf("old names of switches need a value: %v", err)
	}
}

// A file may have a number for a time, as etcd reads one.
func TestOldNamesInAFile(t *testing.T) {
	const progress = "experimental-watch-progress-notify-interval"
	l, err := Load(map[string]string{configFile: file(t, progress+": 60000000000\n")}, nil)
	if err != nil || l.Server.API.WatchProgressInterval != time.Minute {
		t.Errorf("%s: 60000000000 = %v, %v, want 1m0s", progress, l.Server.API.WatchProgressInterval, err)
	}
}

// Two names of one thing must say the same, and features add up.
func TestOldNamesBesideNewOnes(t *testing.T) {
	const old, now = "experimental-snapshot-catchup-entries", "snapshot-catchup-entries"
	if l, err := Load(map[string]string{old: "7", now: "7"}, nil); err != nil || l.Server.Node.CatchUpEntries != 7 {
		t.Errorf("both names with 7 = %d, %v, want 7", l.Server.Node.CatchUpEntries, err)
	}
	if _, err := Load(map[string]string{old: "8", now: "7"}, nil); err == nil || !strings.Contains(err.Error(), `--`+now+` "7"`) || !strings.Contains(err.Error(), "--"+old) {
		t.Errorf("two names with two values = %v, want both named", err)
	}
	if l, err := Load(map[string]string{now: "7"}, []string{"ETCD_EXPERIMENTAL_SNAPSHOT_CATCHUP_ENTRIES=8"}); err != nil || l.Server.Node.CatchUpEntries != 7 {
		t.Errorf("a flag over an old variable = %d, %v, want the flag's 7", l.Server.Node.CatchUpEntries, err)
	}
	flags := map[string]string{featureFlag: "LeaseCheckpoint=true", "experimental-enable-lease-checkpoint-persist": "1"}
	if l, err := Load(flags, nil); err != nil || l.Server.Node.TTLCheckpoint != ttlCheckpoint {
		t.Errorf("a feature and an old name of another = %v, %v, want both", l.Server.Node.TTLCheckpoint, err)
	}
	flags = map[string]string{featureFlag: "LeaseCheckpoint=true", "experimental-enable-lease-checkpoint": "false"}
	if _, err := Load(flags, nil); err == nil || !strings.Contains(err.Error(), "both true and false") {
		t.Errorf("a feature that is on and off = %v, want it refused", err)
	}
}

// Passwords are not logged, also if their settings are refused.
func TestSecretsAreNotShown(t *testing.T) {
	for _, name := range []string{"discovery-user", "discovery-password", "discovery-token"} {
		l, err := Load(map[string]string{name: "hunter2"}, nil)
		said := fmt.Sprint(err, l.Warnings)
		if strings.Contains(said, "hunter2") || !strings.Contains(said, "--"+name) {
			t.Errorf("--%s: %s, want its name and not its value", name, said)
		}
	}
}

// No flag of etcd 3.5 is unknown.
func TestFlagsOfEtcd35(t *testing.T) {
	data, err := os.ReadFile("testdata/etcd-3.5-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(data)) {
		name := strings.TrimSpace(line)
		if strings.HasPrefix(name, "#") {
			continue
		}
		seen++
		if byName[name] == nil {
			t.Errorf("the table has no %s", name)
		}
	}
	if seen < 100 {
		t.Errorf("etcd 3.5 has %d flags, want 100 at least", seen)
	}
}

// The values of the v2 flags that scripts pass by habit are accepted. A value that turns the v2 API on is
// refused with the alternative.
func TestV2(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"enable-v2", "false", ""},
		{"enable-v2", "true", "clients must speak v3"},
		{"proxy", "off", ""},
		{"proxy", "on", "as their endpoints"},
		{"proxy-read-timeout", "0", ""},
		{"proxy-read-timeout", "5", "as their endpoints"},
		{"experimental-enable-v2v3", "", ""},
		{"experimental-enable-v2v3", "/v2", "clients must speak v3"},
		{"v2-deprecation", "not-yet", "there is no v2 store"},
		{"discovery-fallback", "proxy", "there is no discovery service"},
		{"force-new-cluster", "true", "kvnode snapshot restore with --bump-revision and --mark-compacted on that directory"},
	} {
		for way, load := range ways {
			l, err := load(t, test.name, test.value)
			said := strings.Join(l.Warnings, "\n")
			if err != nil {
				said += err.Error()
			}
			if test.want != "" && !strings.Contains(said, test.want) || test.want == "" && err != nil {
				t.Errorf("%s %q by %s = %q, want %q", test.name, test.value, way, said, test.want)
			}
		}
	}
}

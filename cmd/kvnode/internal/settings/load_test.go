package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// file writes a configuration file.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kvnode.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each source goes before those below it.
func TestPrecedence(t *testing.T) {
	path := file(t, "name: from-file\n")
	type sources struct {
		flag, ours, theirs string
		file               bool
	}
	for _, test := range []struct {
		name string
		sources
		want, from string
	}{
		{"nothing is set", sources{}, "default", ""},
		{"file before default", sources{file: true}, "from-file", "file " + path + ":1"},
		{"etcd's variable before the file", sources{theirs: "e", file: true}, "e", "environment ETCD_NAME"},
		{"our variable before the file", sources{ours: "k", file: true}, "k", "environment KVNODE_NAME"},
		{"both variables agree", sources{ours: "x", theirs: "x"}, "x", "environment KVNODE_NAME"},
		{"flag before all", sources{"f", "k", "k", true}, "f", "flag --name"},
		{"empty variables count as unset", sources{file: true}, "from-file", "file " + path + ":1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			flags := map[string]string{}
			if test.flag != "" {
				flags["name"] = test.flag
			}
			if test.file {
				flags[configFile] = path
			}
			l, err := Load(flags, []string{"KVNODE_NAME=" + test.ours, "ETCD_NAME=" + test.theirs, "HOME=/"})
			if err != nil || l.Server.Node.Name != test.want || l.from["name"] != test.from {
				t.Errorf("Load() = name %q from %q, %v, want %q from %q", l.Server.Node.Name, l.from["name"], err, test.want, test.from)
			}
		})
	}
}

// Two variables that disagree are an error even if a flag overrides both for this start.
func TestVariablesThatDisagree(t *testing.T) {
	for _, flags := range []map[string]string{nil, {"name": "c"}} {
		_, err := Load(flags, []string{"KVNODE_NAME=a", "ETCD_NAME=b"})
		if want := `KVNODE_NAME is "a" but ETCD_NAME is "b"`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%v) = %v, want %s", flags, err, want)
		}
	}
}

func TestTheFileMayBeNamedByTheEnvironment(t *testing.T) {
	path := file(t, "name: a\n")
	for _, name := range []string{"KVNODE_CONFIG_FILE", "ETCD_CONFIG_FILE"} {
		if l, err := Load(nil, []string{name + "=" + path}); err != nil || l.Server.Node.Name != "a" {
			t.Errorf("Load() with %s = %q, %v, want the file's name", name, l.Server.Node.Name, err)
		}
	}
}

// All errors of a configuration are reported at once.
func TestAllErrorsAreReportedTogether(t *testing.T) {
	path := file(t, "heartbeat-interval: soon\nbogus: 1\nmax-txn-ops: 0\npeer-skip-client-san-verification: true\n")
	_, err := Load(map[string]string{
		configFile: path, "listen-client-urls": "localhost:1", "feature-gates": "Flying=true", "wal-dir": "/elsewhere",
		"lease-duration": "-1s", "read-mode": "auto", "initial-cluster": "a",
	}, []string{"KVNODE_METRICS=basic", "ETCD_METRICS=extensive", "ETCD_ELECTION_TIMEOUT=1.5"})
	if err == nil {
		t.Fatal("Load() = nil, want errors")
	}
	for _, want := range []string{
		`--heartbeat-interval: "soon" must be a whole number of milliseconds from 1 to 86400000 (from file ` + path + ":1)",
		path + `:2: unknown key "bogus"`,
		`--max-txn-ops: "0" must be a whole number from 1 to 2147483647`,
		`--peer-skip-client-san-verification "true" is refused because a peer`,
		`--listen-client-urls "localhost:1" must begin with http://`,
		`--feature-gates: there is no feature "Flying"`,
		`--wal-dir "/elsewhere" is refused because`,
		`--lease-duration -1s must not be negative`,
		`--read-mode: "auto" must be one of lease, read-index, log, serializable (from flag --read-mode)`,
		`--initial-cluster: "a" must be name=url`,
		`KVNODE_METRICS is "basic" but ETCD_METRICS is "extensive"`,
		`--election-timeout: "1.5" must be a whole number of milliseconds from 1 to 86400000 (from environment ETCD_ELECTION_TIMEOUT)`,
	} {
		if n := strings.Count(Spoken(err.Error()), want); n != 1 {
			t.Errorf("Load() has %d times, want once: %s\ngot: %v", n, want, err)
		}
	}
	if got, want := strings.Count(err.Error(), "\n")+1, 12; got != want {
		t.Errorf("Load() reports %d errors, want %d: %v", got, want, err)
	}
}

// What would be wrong but is overridden does not count.
func TestOnlyTheStrongestSourceCounts(t *testing.T) {
	path := file(t, "heartbeat-interval: soon\nwal-dir: a\n")
	l, err := Load(map[string]string{configFile: path, "heartbeat-interval": "50", "wal-dir": ""}, nil)
	if err != nil || l.Server.Node.TickInterval != 50*time.Millisecond {
		t.Errorf("Load() = %v, %v, want the flag's 50ms", l.Server.Node.TickInterval, err)
	}
}

// A typing error in a variable is not an error, since Kubernetes makes such
// variables up; but it is said.
func TestUnknownVariablesAreMentioned(t *testing.T) {
	l, err := Load(nil, []string{"ETCD_NAMES=a", "KVNODE_PORT=tcp://10.0.0.1:80", "ETCD_VERSION=3", "ETCDCTL_API=3"})
	want := []string{
		"environment ETCD_NAMES is no setting of kvnode and has no effect; did you mean ETCD_NAME?",
		"environment KVNODE_PORT is no setting of kvnode and has no effect",
	}
	if err != nil || strings.Join(l.Warnings, "\n") != strings.Join(want, "\n") {
		t.Errorf("Load() = warnings %q, %v, want %q", l.Warnings, err, want)
	}
}

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

// A source overrides the sources below it.
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

// A wrong value that another source overrides is no error.
func TestOnlyTheStrongestSourceCounts(t *testing.T) {
	path := file(t, "heartbeat-interval: soon\nwal-dir: a\n")
	l, err := Load(map[string]string{configFile: path, "heartbeat-interval": "50", "wal-dir": ""}, nil)
	if err != nil || l.Server.Node.TickInterval != 50*time.Millisecond {
		t.Errorf("Load() = %v, %v, want the flag's 50ms", l.Server.Node.TickInterval, err)
	}
}

// An unknown variable is a warning and not an error, since Kubernetes sets variables with such
// names by itself.
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

func TestFiles(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       string // part of the error; the path is F
	}{
		{"empty", "", ""},
		{"only a comment", "# nothing\n", ""},
		{"null is unset", "name:\n", ""},
		{"unknown key", "name: a\nlisten-urls: b\n", `F:2: unknown key "listen-urls"`},
		{"a key with a slip", "listen-client-url: b\n", `F:1: unknown key "listen-client-url"; did you mean listen-client-urls?`},
		{"a key of a section with a slip", "peer-transport-security:\n  cert-fil: a\n", `F:2: unknown key "cert-fil"; did you mean peer-cert-file?`},
		{"the same key twice", "name: a\nmetrics: basic\nname: b\n", "F:3: name is set here and in line 1"},
		{"the same setting in a section", "cert-file: ''\nclient-transport-security:\n  cert-file: ''\n", "F:3: cert-file is set here and in line 1"},
		{"unknown key in a section", "peer-transport-security:\n  colour: red\n", `F:2: unknown key "colour"`},
		{"no section in a section", "peer-transport-security:\n  client-transport-security: {}\n", `F:2: unknown key`},
		{"refused in a section", "peer-transport-security:\n  skip-client-san-verification: true\n", `--peer-skip-client-san-verification "true" is refused because a peer`},
		{"TLS in sections", "client-transport-security: {cert-file: a, key-file: b, trusted-ca-file: c, allowed-hostname: h}\n" +
			"peer-transport-security: {cert-file: a, key-file: b, trusted-ca-file: c, allowed-cn: n}\n" +
			"listen-client-urls: https://localhost:1\nlisten-peer-urls: https://localhost:2\n", ""},
		{"no short name outside", "peer-allowed-cn: a\n", `F:1: unknown key "peer-allowed-cn"`},
		{"a section of defaults", "client-transport-security:\n  auto-tls: false\n  cert-file: ''\n", ""},
		{"not a mapping", "- a\n", "F:1: must be keys with values"},
		{"a mapping for a value", "name: {a: b}\n", "F:1: name must be a plain value"},
		{"a list in a list", "listen-client-urls: [[a]]\n", "F:1: listen-client-urls must be a list of plain values"},
		{"two documents", "name: a\n---\nname: b\n", "a second document follows"},
		{"not YAML", "name: [\n", "--config-file F: yaml: "},
		{"config-file in a file", "config-file: a\n", `F:1: unknown key "config-file"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := file(t, test.text)
			_, err := Load(map[string]string{configFile: path}, nil)
			want := strings.ReplaceAll(test.want, "F", path)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("Load(%q) = %v, want %q", test.text, err, want)
			}
		})
	}
}

func TestAFileThatIsMissing(t *testing.T) {
	if _, err := Load(map[string]string{configFile: "/nowhere.yaml"}, nil); err == nil || !strings.Contains(err.Error(), "/nowhere.yaml") {
		t.Errorf("Load() = %v, want that /nowhere.yaml cannot be read", err)
	}
}

// A configuration file for etcd has the same effect here.
func TestAFileOfEtcd(t *testing.T) {
	l, err := Load(map[string]string{configFile: file(t, `
name: infra0
allow-plaintext: true # this one is not etcd's
data-dir: /var/lib/infra0
heartbeat-interval: 200
election-timeout: 2000
listen-client-urls: http://10.0.0.1:2379,http://127.0.0.1:2379
listen-metrics-urls: &m [http://127.0.0.1:2381, http://127.0.0.1:2382]
listen-client-http-urls: *m
advertise-client-urls: http://10.0.0.1:2379
listen-peer-urls: http://10.0.0.1:2380
initial-advertise-peer-urls: http://10.0.0.1:2380
initial-cluster: infra0=http://10.0.0.1:2380,infra1=http://10.0.0.2:2380
initial-cluster-state: new
strict-reconfig-check: false
enable-pprof: true
grpc-keepalive-min-time: 2000000000
log-outputs: [stderr]
log-level: debug
feature-gates: LeaseCheckpoint=true
auto-compaction-retention: 30m
max-wals: 7
`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &l.Server
	for name, pair := range map[string][2]any{
		"name":                      {s.Node.Name, "infra0"},
		"data-dir":                  {s.Node.DataDir, "/var/lib/infra0"},
		"heartbeat-interval":        {s.Node.TickInterval, 200 * time.Millisecond},
		"listen-client-urls":        {len(s.ListenClientURLs), 2},
		"listen-metrics-urls":       {len(s.ListenMetricsURLs), 2},
		"listen-client-http-urls":   {len(s.ListenClientHTTPURLs), 2},
		"initial-cluster":           {len(s.Node.Cluster), 2},
		"strict-reconfig-check":     {s.Node.LaxReconfig, true},
		"auto-compaction-mode":      {s.AutoCompactionMode, "periodic"},
		"auto-compaction-retention": {s.AutoCompactionRetention, "30m"},
		"enable-pprof":              {s.EnablePprof, true},
		"grpc-keepalive-min-time":   {s.Keepalive.MinTime, 2 * time.Second},
		"log-level":                 {l.Log.Level, "debug"},
		"log-outputs":               {l.Log.Outputs[0], "stderr"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %v, want %v as the file says", name, pair[0], pair[1])
		}
	}
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "max-wals") {
		t.Errorf("Warnings = %q, want one, of max-wals", l.Warnings)
	}
}

// etcd's sample file starts kvnode. Settings without effect are reported.
func TestTheSampleFileOfEtcd(t *testing.T) {
	l, err := Load(map[string]string{configFile: "testdata/etcd.conf.yml.sample"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "--discovery-fallback \"proxy\" has no effect") || !strings.Contains(l.Warnings[0], "etcd.conf.yml.sample:49") {
		t.Errorf("Warnings = %q, want one, of discovery-fallback", l.Warnings)
	}
	if s := &l.Server; !s.Node.LaxReconfig || s.AutoCompactionRetention != "1" || len(s.TLSCipherSuites) != 2 || !s.EnablePprof || s.TLSMaxVersion != "TLS1.3" || l.Log.Level != "debug" {
		t.Errorf("Load() = %+v, %+v, want what the file says", l.Server, l.Log)
	}
}

package settings

import (
	"strings"
	"testing"
	"time"
)

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

// A file that was made for etcd says the same here.
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

// The file that comes with etcd starts kvnode; what has no effect is said.
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

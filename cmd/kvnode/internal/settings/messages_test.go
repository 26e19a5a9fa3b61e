package settings

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// For each flag that sets a field of the server, Spoken replaces the field by the flag.
func TestFieldsAreSpokenAsFlags(t *testing.T) {
	for text, want := range map[string]string{
		"Node.LeaseDuration 1s must be below ElectionTimeout 1s": "--lease-duration 1s must be below --election-timeout 1s",
		"Node.Name \"a\" is not in Node.Cluster":                 `--name "a" is not in --initial-cluster`,
		"Name and Cluster are words":                             "Name and Cluster are words",
		"PeerTLS.CRLFile needs PeerTLS.TrustedCAFile":            "--peer-crl-file needs --peer-trusted-ca-file",
		"ClientTLS.CRLFile, MinVersion":                          "--client-crl-file, --tls-min-version",
		"join with Config.Existing, all in Config.Cluster":       "join with --initial-cluster-state existing, all in --initial-cluster",
		"the name x (Config.Name) and Config.Token":              "the name x (--name) and --initial-cluster-token",
		"Keepalive.MinTime and MaxTxnOps; MaxOpenStreams.":       "--grpc-keepalive-min-time and --max-txn-ops; --max-open-streams.",
	} {
		if got := Spoken(text); got != want {
			t.Errorf("Spoken(%q) = %q, want %q", text, got, want)
		}
	}
	spoken := make(map[string]bool)
	for _, flag := range flagOf {
		spoken[strings.TrimSuffix(flag, " existing")] = true
	}
	for _, s := range table {
		if s.honoured() && !spoken[s.name] && s.topic != logging && s.name != featureFlag && s.name != "supervise" {
			t.Errorf("--%s has no field of server.Config that is spoken as it", s.name)
		}
	}
}

// Quoted text, paths, names and values that look like fields are not changed.
func TestMessagesOfOtherLibrariesStay(t *testing.T) {
	for _, text := range []string{
		"open /srv/MaxTxnOps/member: no such file or directory", "open ReadMode/member: no such file or directory", `open C:\DisableLease: no such file`,
		"stat DisableLease.db: no such file", "http://ReadMode:2380 does not answer", "a=http://h:1,MaxTxnOps=http://h:2", "ReadMode(9)",
		`member "MaxTxnOps"`, `"a MaxTxnOps b" is a name`, `"\"MaxTxnOps\" " is a name`, "--MaxTxnOps", "MaxTxnOps-1.log",
	} {
		if got := Spoken(text); got != text {
			t.Errorf("Spoken(%q) = %q, want it unchanged", text, got)
		}
	}
	const text = `a quote " without an end, (MaxTxnOps): "x", MaxTxnOps` + "\nReadMode"
	if got, want := Spoken(text), `a quote " without an end, (MaxTxnOps): "x", --max-txn-ops`+"\n--read-mode"; got != want {
		t.Errorf("Spoken(%q) = %q, want %q", text, got, want)
	}
}

// The packages of kvnode name no flags, since embedders have none; only cmd does.
func TestNoPackageOfKvnodeKnowsFlags(t *testing.T) {
	err := filepath.WalkDir("../../../../kvnode", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "e2e" || d.Name() == "etcdsuites") {
			return filepath.SkipDir // they run the program
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, s := range table {
			if strings.Contains(string(source), "--"+s.name) {
				t.Errorf("%s names --%s", path, s.name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func BenchmarkSpoken(b *testing.B) {
	for b.Loop() {
		_ = Spoken("apply request took too long: /srv/data/member/log, and what else a line of the log may say of a member")
	}
}

func TestNearestWord(t *testing.T) {
	known := []string{"data-dir", "name", "serve", "status", "snapshot", "wal", "listen-client-urls", "listen-metrics-urls"}
	for given, want := range map[string]string{
		"":                   "",
		"stauts":             "status", // two letters swapped
		"STATUS":             "status",
		"sttus":              "status",
		"serv":               "serve",
		"walk":               "wal",
		"anme":               "name",
		"data-dirr":          "data-dir",
		"datadir":            "data-dir",
		"listen-client-url":  "listen-client-urls",
		"listen-clients-url": "listen-client-urls",
		"bogus":              "",
		"foo":                "",
		"x":                  "",
		"wallet":             "",
	} {
		if got := nearestWord(given, known); got != want {
			t.Errorf("nearestWord(%q) = %q, want %q", given, got, want)
		}
	}
}

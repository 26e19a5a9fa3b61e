package kvnode

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
)

// aloneConfig returns the configuration of a cluster of one, whose directory is
// not made yet.
func aloneConfig(tb testing.TB) Config {
	tb.Helper()
	return Config{
		Name: "n1", DataDir: filepath.Join(tb.TempDir(), "data"), Listener: nowhere{},
		Cluster: []Member{{Name: "n1", PeerURLs: []string{"http://127.0.0.1:2380"}}},
	}.WithDefaults()
}

// nowhere is a listener that nobody reaches.
type nowhere struct{ net.Listener }

func (nowhere) Close() error { return nil }

func TestIdentityIsMadeOnceAndKept(t *testing.T) {
	cfg := aloneConfig(t)
	made, fresh, err := openIdentity(&cfg)
	if err != nil || !fresh || made.Instance == "" {
		t.Fatalf("openIdentity() = %+v, fresh %v, %v, want a new one", made, fresh, err)
	}
	found, fresh, err := openIdentity(&cfg)
	if err != nil || fresh || found.Instance != made.Instance || found.MemberID != made.MemberID {
		t.Errorf("openIdentity() again = %+v, fresh %v, %v, want %+v", found, fresh, err, made)
	}
}

func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	tests := []struct {
		name string
		bend func(*Config)
		want string
	}{
		{"another member's", func(c *Config) {
			c.Name, c.Cluster[0].Name = "n2", "n2"
		}, `of member "n1"`},
		{"another token's", func(c *Config) { c.Token = "other" }, `token "etcd-cluster", not "other"`},
		{"another cluster's", func(c *Config) {
			c.Cluster = []Member{{Name: "n1", PeerURLs: []string{"http://127.0.0.1:9"}}}
		}, "no member in common"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cfg := aloneConfig(t)
			if _, _, err := openIdentity(&cfg); err != nil {
				t.Fatal(err)
			}
			tc.bend(&cfg)
			if _, _, err := openIdentity(&cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("openIdentity() of %s directory = %v, want ...%s...", tc.name, err, tc.want)
			}
		})
	}
}

func TestDamagedOrForeignDirectoriesAreRefused(t *testing.T) {
	tests := []struct{ name, file, content, want string }{
		{"foreign files", "notes.txt", "hello", "notes.txt"},
		{"a damaged identity", identityFile, "{", "damaged"},
		{"a newer format", identityFile, `{"format":2}`, "format 2"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cfg := aloneConfig(t)
			if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(cfg.DataDir, tc.file)
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := openIdentity(&cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("openIdentity() with %s = %v, want ...%s...", tc.name, err, tc.want)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != tc.content {
				t.Errorf("the file holds %q, %v afterwards, want it untouched", data, err)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	a, b := []string{"http://a:1", "http://b:1"}, []string{"http://b:1", "http://a:1"}
	if memberID(a, "t") != memberID(b, "t") {
		t.Error("memberID depends on the order of URLs")
	}
	if memberID(a, "t") == memberID(a, "u") {
		t.Error("memberID does not depend on the token")
	}
	if id := memberID(a, "t"); id == raft.None || raft.IsLocalMsgTarget(id) {
		t.Errorf("memberID = %x, which raft keeps for itself", id)
	}
	x, y := Member{PeerURLs: []string{"http://x:1"}}, Member{PeerURLs: []string{"http://y:1"}}
	if clusterID([]Member{x, y}, "t") != clusterID([]Member{y, x}, "t") {
		t.Error("clusterID depends on the order of members")
	}
}

package kvnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/restore"
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

// nowhere is a listener without connections.
type nowhere struct{ net.Listener }

func (nowhere) Close() error { return nil }

func TestIdentityIsMadeOnceAndKept(t *testing.T) {
	cfg := aloneConfig(t)
	made, err := openIdentity(&cfg)
	if err != nil || made.Instance == "" {
		t.Fatalf("openIdentity() = %+v, %v, want a new one", made, err)
	}
	found, err := openIdentity(&cfg)
	if err != nil || found.Instance != made.Instance || found.MemberID != made.MemberID {
		t.Errorf("openIdentity() again = %+v, %v, want %+v", found, err, made)
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
			if _, err := openIdentity(&cfg); err != nil {
				t.Fatal(err)
			}
			tc.bend(&cfg)
			if _, err := openIdentity(&cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("openIdentity() of %s directory = %v, want ...%s...", tc.name, err, tc.want)
			}
		})
	}
}

func TestDamagedOrForeignDirectoriesAreRefused(t *testing.T) {
	tests := []struct{ name, file, content, want string }{
		{"foreign files", "notes.txt", "hello", "notes.txt"},
		{"a damaged identity", memberdir.IdentityFile, "{", "damaged"},
		{"a newer format", memberdir.IdentityFile, `{"format":2}`, "format 2"},
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
			if _, err := openIdentity(&cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("openIdentity() with %s = %v, want ...%s...", tc.name, err, tc.want)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != tc.content {
				t.Errorf("the file holds %q, %v afterwards, want it untouched", data, err)
			}
		})
	}
}

// spell has each member of a cluster of three write down the others in its own way,
// each with two URLs: other names, and another order.
func spell(cfg *Config) {
	var cluster []Member
	for _, m := range cfg.Cluster {
		urls := []string{m.PeerURLs[0], strings.Replace(m.PeerURLs[0], "2380", "2381", 1)}
		if cfg.Name == "m2" {
			slices.Reverse(urls)
		}
		name := m.Name
		if name != cfg.Name && cfg.Name == "m3" {
			name = "the one called " + name
		}
		cluster = append(cluster, Member{Name: name, PeerURLs: urls})
	}
	if cfg.Name == "m2" {
		slices.Reverse(cluster)
	}
	cfg.Cluster = cluster
}

// What the log begins with is the same on all members, to the byte, however each
// of them spelt its flags: an entry of one index and term has one content.
func TestInitialMembersBeginWithTheSameEntries(t *testing.T) {
	inCluster(t, 3, spell, func(t *testing.T, c *cluster) {
		n := c.leader()
		want, err := n.wal.Entries(1, 4, math.MaxUint64)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range c.followers(n) {
			got, err := f.wal.Entries(1, 4, math.MaxUint64)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if !proto.Equal(got[i], want[i]) {
					t.Errorf("entry %d of %s is %q, and that of %s %q", i+1, f.Name(), got[i].GetData(), n.Name(), want[i].GetData())
				}
			}
		}
		<-n.Published()
		if m := n.Store().Members().ByID[n.ID()]; m.Name != n.Name() || len(m.PeerURLs) != 2 {
			t.Errorf("the registry has %+v, want the name %s and both URLs", m, n.Name())
		}
	})
}

// So is the state that a restored cluster begins with.
func TestRestoredMembersBeginWithTheSameState(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		file := saveSnapshot(t, c.leader())
		c.restoreAll(file, func(r *restore.Config) {
			cfg := Config{Name: r.Name, Cluster: r.Cluster}
			spell(&cfg)
			r.Cluster = cfg.Cluster
		})
		var want []byte
		for _, name := range []string{"m1", "m2", "m3"} {
			n := newNode(c.cfgs[name].WithDefaults())
			if err := openFiles(n); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(membership.Sorted(n.store.Members()))
			if err := errors.Join(err, closeFiles(n)); err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s begins with members %s, and m1 with %s", name, got, want)
			}
		}
	})
}

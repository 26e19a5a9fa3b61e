package server

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/raftwal"
)

// tree returns all files below dir with their contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			all[path] = ""
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fresh is a configuration that Check accepts.
func fresh(t *testing.T) Config {
	t.Helper()
	return Config{
		Node:             kvnode.Config{Name: "n1", DataDir: filepath.Join(t.TempDir(), "data"), SegmentSize: smallSegment},
		ListenClientURLs: []string{"http://" + free(t)}, ListenPeerURLs: []string{"http://" + free(t)},
	}
}

// Check and Start report the same errors, and neither writes anything.
func TestCheck(t *testing.T) {
	pki := tlstest.New(t, "authority")
	other := tlstest.New(t, "other")
	dir := t.TempDir()
	cert, key := pki.Issue([]string{"127.0.0.1"}).Write(dir, "a")
	_, otherKey := other.Issue([]string{"127.0.0.1"}).Write(dir, "b")
	https := func(c *Config) { c.ListenClientURLs[0] = strings.Replace(c.ListenClientURLs[0], "http", "https", 1) }
	for _, test := range []struct {
		name string
		set  func(*Config)
		want string // part of the error, nothing if all is well
	}{
		{"all is well", func(*Config) {}, ""},
		{"a certificate", func(c *Config) { https(c); c.ClientTLS = tlsconf.Config{CertFile: cert, KeyFile: key} }, ""},
		{"a certificate to be made", func(c *Config) { https(c); c.ClientTLS.Auto = true }, ""},
		{"no certificate", func(c *Config) { https(c); c.ClientTLS = tlsconf.Config{CertFile: "/no/cert", KeyFile: key} }, "ClientTLS.CertFile: open /no/cert"},
		{"no key", func(c *Config) { https(c); c.ClientTLS = tlsconf.Config{CertFile: cert, KeyFile: "/no/key"} }, "ClientTLS.KeyFile: open /no/key"},
		{"another's key", func(c *Config) { https(c); c.ClientTLS = tlsconf.Config{CertFile: cert, KeyFile: otherKey} }, "ClientTLS.CertFile " + cert + " with ClientTLS.KeyFile"},
		{"no authority", func(c *Config) { https(c); c.ClientTLS = tlsconf.Config{Auto: true, TrustedCAFile: "/no/ca"} }, "ClientTLS.TrustedCAFile: open /no/ca"},
		{"no authority of peers", func(c *Config) {
			c.ListenPeerURLs = []string{"https://" + free(t)}
			c.PeerTLS = tlsconf.Config{CertFile: cert, KeyFile: key, TrustedCAFile: "/no/ca"}
		}, "PeerTLS.TrustedCAFile: open /no/ca"},
		{"a client port that is taken", func(c *Config) { c.ListenClientURLs = []string{held(t)} }, "ListenClientURLs http://127.0.0.1:"},
		{"a peer port that is taken", func(c *Config) { c.ListenPeerURLs = []string{held(t)} }, "ListenPeerURLs http://127.0.0.1:"},
		{"an HTTP port that is taken", func(c *Config) { c.ListenClientHTTPURLs = []string{held(t)} }, "ListenClientHTTPURLs http://127.0.0.1:"},
		{"a port for metrics that is taken", func(c *Config) { c.ListenMetricsURLs = []string{held(t)} }, "ListenMetricsURLs http://127.0.0.1:"},
		{"one port twice", func(c *Config) { c.ListenMetricsURLs = c.ListenPeerURLs }, "the port is taken"},
		{"another program's directory", func(c *Config) { write(t, c.Node.DataDir, "notes.txt", "") }, `it has "notes.txt"`},
		{"a damaged identity", func(c *Config) { write(t, c.Node.DataDir, "member.json", "{") }, "member.json is damaged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fresh(t)
			test.set(&c)
			root := filepath.Dir(c.Node.DataDir)
			before := tree(t, root)
			err := c.WithDefaults().Check()
			if after := tree(t, root); !maps.Equal(before, after) {
				t.Errorf("Check() has made or changed files: %q", slices.Sorted(maps.Keys(after)))
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("Check() = %v, want %q", err, test.want)
			}
			s, err := Start(c)
			if test.want == "" {
				if err != nil {
					t.Fatalf("Start() after Check() = nil: %v, want nil", err)
				}
				stop(t, s)
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Start() = %v, want what Check() says: %q", err, test.want)
			}
			if after := tree(t, root); !maps.Equal(before, after) {
				t.Errorf("Start() that failed has made or changed files: %q", slices.Sorted(maps.Keys(after)))
			}
		})
	}
}

// held returns the URL of a port that is in use until the test ends.
func held(t *testing.T) string {
	t.Helper()
	l := ephemeral(t)
	t.Cleanup(func() { _ = l.Close() })
	return listenerURL(l, "")
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// Check rejects the data directory of a running member, and of another member.
func TestCheckTheDirectoryOfAMember(t *testing.T) {
	c := fresh(t)
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the member is ready", s.Ready())
	err = c.WithDefaults().Check()
	if !errors.Is(err, raftwal.ErrLocked) || !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "a member runs with it") {
		t.Errorf("Check() beside the member = %v, want that it runs, and that its ports are taken", err)
	}
	stop(t, s)
	if err := c.WithDefaults().Check(); err != nil {
		t.Errorf("Check() once it has stopped = %v, want nil", err)
	}
	for _, test := range []struct {
		name string
		set  func(*Config)
		want string
	}{
		{"another name", func(c *Config) { c.Node.Name = "n2" }, `is of member "n1"`},
		{"another token", func(c *Config) { c.Node.Token = "x" }, `token "etcd-cluster", not "x"`},
		{"another cluster", func(c *Config) { c.Node.Cluster = member("n1", "http://10.0.0.1:1") }, "no member in common"},
	} {
		other := c
		test.set(&other)
		if err := other.WithDefaults().Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Check() with %s = %v, want %q", test.name, err, test.want)
		}
	}
	if err := os.RemoveAll(filepath.Join(c.Node.DataDir, "wal")); err != nil {
		t.Fatal(err)
	}
	if err := c.WithDefaults().Check(); !errors.Is(err, kvnode.ErrLost) {
		t.Errorf("Check() without the log = %v, want ErrLost", err)
	}
}

// The node accepts every lease and limit that Validate accepts.
func TestWhatIsValidStarts(t *testing.T) {
	listener := func() net.Listener { return ephemeral(t) }
	dir := t.TempDir
	rapid.Check(t, func(t *rapid.T) {
		ms := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
		}
		c := Config{
			Node: kvnode.Config{
				TickInterval: ms("heartbeat", 100), ElectionTimeout: ms("election", 2000), LeaseDuration: ms("lease", 1000), MaxClockSkew: ms("skew", 1000),
				MaxDriftPPM: rapid.IntRange(0, 200_000).Draw(t, "drift"), MaxRequestBytes: rapid.IntRange(0, 10<<20).Draw(t, "request"),
			},
		}.WithDefaults()
		if c.Validate() != nil {
			return
		}
		c.Node.DataDir = filepath.Join(dir(), "data")
		n, err := kvnode.Start(c.node(listener()))
		if err != nil {
			t.Fatalf("Validate() = nil, kvnode.Start() = %v", err)
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

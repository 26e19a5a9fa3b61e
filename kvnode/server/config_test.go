package server

import (
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/server/internal/etcdapi"
)

func TestDefaultIsValid(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Errorf("Default().Validate() = %v, want nil", err)
	}
	if again := c.WithDefaults(); again.Node.Cluster[0].PeerURLs[0] != "http://localhost:2380" || again.Node.DataDir != "default.kvnode" {
		t.Errorf("WithDefaults() = %+v, want etcd's ports and a directory by the name", again)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*Config)
		want string // part of the error, nothing if it is valid
	}{
		{"shortest election timeout", func(c *Config) { c.Node.ElectionTimeout = 250 * time.Millisecond }, ""},
		{"election timeout too short", func(c *Config) { c.Node.ElectionTimeout = 249 * time.Millisecond }, "Node.ElectionTimeout 249ms must be 5 times"},
		{"longest election timeout", func(c *Config) { c.Node.ElectionTimeout = 50 * time.Second }, ""},
		{"election timeout too long", func(c *Config) { c.Node.ElectionTimeout = 50*time.Second + time.Millisecond }, "must be 50s at most"},
		{"negative heartbeat", func(c *Config) { c.Node.TickInterval = -1 }, "Node.TickInterval"},
		{"longest lease", func(c *Config) { c.Node.LeaseDuration = 950 * time.Millisecond }, ""},
		{"lease delays fail-over", func(c *Config) { c.Node.LeaseDuration = 951 * time.Millisecond }, "Node.LeaseDuration 951ms must be 950ms at most"},
		{"negative lease", func(c *Config) { c.Node.LeaseDuration = -1 }, "Node.LeaseDuration"},
		{"longest lease of an odd election timeout", func(c *Config) {
			c.Node.ElectionTimeout, c.Node.LeaseDuration = 1025*time.Millisecond, 950*time.Millisecond
		}, ""},
		{"the node counts in heartbeats", func(c *Config) {
			c.Node.ElectionTimeout, c.Node.LeaseDuration = 1025*time.Millisecond, 975*time.Millisecond
		}, "Node.LeaseDuration 975ms must be 950ms at most"},
		{"largest skew", func(c *Config) { c.Node.MaxClockSkew = 850 * time.Millisecond }, ""},
		{"skew leaves less than two heartbeats", func(c *Config) { c.Node.MaxClockSkew = 850*time.Millisecond + 1 }, "Node.MaxClockSkew 850.000001ms, Node.LeaseDuration 950ms"},
		{"skew below what clocks drift", func(c *Config) { c.Node.MaxClockSkew = 1 }, "MaxClockSkew 1ns is below 38.461396ms"},
		{"drift beyond the default skew", func(c *Config) { c.Node.MaxDriftPPM = 300_000 }, "and Node.MaxDriftPPM 300000 do not go together"},
		{"a lease of one heartbeat", func(c *Config) { c.Node.LeaseDuration = 50 * time.Millisecond }, "Node.LeaseDuration 50ms and"},
		{"skew eats the lease", func(c *Config) { c.Node.MaxClockSkew = 950 * time.Millisecond }, "must be below Node.LeaseDuration 950ms"},
		{"skew that is no time at all", func(c *Config) { c.Node.MaxClockSkew = math.MaxInt64 }, "must be below Node.LeaseDuration 950ms"},
		{"the margin of former versions", func(c *Config) { c.Node.MaxClockSkew = 180 * time.Millisecond }, ""},
		{"a short promise of former versions", func(c *Config) {
			c.Node.LeaseDuration, c.Node.TickInterval = 250*time.Millisecond, 100*time.Millisecond
		}, ""},
		{"negative skew", func(c *Config) { c.Node.MaxClockSkew = -1 }, "Node.MaxClockSkew"},
		{"drift", func(c *Config) { c.Node.MaxDriftPPM = 1_000_000 }, "Node.MaxDriftPPM 1000000"},
		{"requests too large", func(c *Config) { c.Node.MaxRequestBytes = 9<<20 + 1 }, "Node.MaxRequestBytes 9437185 must be from 1 to 9437184"},
		{"largest requests", func(c *Config) { c.Node.MaxRequestBytes = 9 << 20 }, ""},
		{"a member without URL", func(c *Config) {
			c.Node.Cluster = append(member("default", "http://localhost:2380"), member("b")...)
		}, `member "b": a member needs a peer URL`},
		{"a member twice", func(c *Config) {
			c.Node.Cluster = append(member("default", "http://localhost:2380"), member("default", "http://localhost:1")...)
		}, "Node.Cluster"},
		{"no such mode", func(c *Config) { c.AutoCompactionMode = "hourly" }, `AutoCompactionMode and AutoCompactionRetention: mode "hourly"`},
		{"a time for revisions", func(c *Config) { c.AutoCompactionMode, c.AutoCompactionRetention = "revision", "30m" }, `retention "30m" must be a number of revisions`},
		{"revisions", func(c *Config) { c.AutoCompactionMode, c.AutoCompactionRetention = "revision", "1000" }, ""},
		{"hours", func(c *Config) { c.AutoCompactionRetention = "8" }, ""},
		{"shortest watch progress", func(c *Config) { c.API.WatchProgressInterval = 100 * time.Millisecond }, ""},
		{"watch progress too often", func(c *Config) { c.API.WatchProgressInterval = 100*time.Millisecond - 1 }, "WatchProgressInterval 99.999999ms must be at least 100ms"},
		{"negative watch progress", func(c *Config) { c.API.WatchProgressInterval = -1 }, "WatchProgressInterval -1ns"},
		{"negative checkpoints of TTL leases", func(c *Config) { c.Node.TTLCheckpoint = -1 }, "Node.TTLCheckpoint -1ns must not be negative"},
		{"negative warning", func(c *Config) { c.API.WarnRequest = -1 }, "WarnRequest -1ns must not be negative"},
		{"negative operations", func(c *Config) { c.API.MaxTxnOps = -1 }, "MaxTxnOps -1"},
		{"too few streams", func(c *Config) { c.MaxOpenStreams = 15 }, "MaxOpenStreams 15 must be from 16"},
		{"https", func(c *Config) { c.ListenClientURLs = []string{"https://localhost:1"} }, "needs ClientTLS.CertFile and ClientTLS.KeyFile, or ClientTLS.Auto"},
		{"https for clients", func(c *Config) { c.ListenClientURLs, c.ClientTLS = []string{"https://a:1"}, certified }, ""},
		{"https in capitals is https", func(c *Config) { c.ListenClientURLs, c.ClientTLS = []string{"HTTPS://a:1"}, certified }, ""},
		{"http in capitals is http", func(c *Config) { c.ListenClientURLs = []string{"HTTP://10.0.0.1:1"} }, "is plain text for the whole network"},
		{"a certificate for no URL", func(c *Config) {
			c.ListenClientURLs, c.ClientTLS = []string{"http://localhost:1"}, certified
		}, "no URL to listen on for clients is https"},
		{"half a certificate", func(c *Config) { c.ClientTLS.CertFile = "a" }, "go together"},
		{"plain text for all", func(c *Config) { c.ListenClientURLs = []string{"http://0.0.0.0:1"} }, "make it https, or set AllowPlaintext"},
		{"plain text for peers", func(c *Config) { c.ListenPeerURLs = []string{"http://10.0.0.1:1"} }, "ListenPeerURLs http://10.0.0.1:1 is plain text"},
		{"plain metrics for all", func(c *Config) { c.ListenMetricsURLs = []string{"http://:1"} }, "ListenMetricsURLs http://:1 is plain text"},
		{"plain Redis for all", func(c *Config) { c.ListenRedisURLs = []string{"http://:1"} }, "ListenRedisURLs http://:1 is plain text"},
		{"plain text on a name", func(c *Config) { c.ListenClientHTTPURLs = []string{"http://localhost.example.org:1"} }, "is plain text"},
		{"plain text on loopback", func(c *Config) {
			c.ListenMetricsURLs = []string{"http://127.0.0.2:1", "http://[::1]:1", "http://localhost:2"}
		}, ""},
		{"a way round the certificate", func(c *Config) {
			c.ListenClientURLs, c.ClientTLS = []string{"https://a:1", "http://10.0.0.1:1"}, certified
			c.ClientTLS.TrustedCAFile, c.AllowPlaintext = "a", true
		}, "ListenClientURLs http://10.0.0.1:1 would accept clients without the certificate"},
		{"a way round it by HTTP", func(c *Config) {
			c.ListenClientURLs, c.ListenClientHTTPURLs, c.ClientTLS = []string{"https://a:1"}, []string{"http://0.0.0.0:1"}, certified
			c.ClientTLS.TrustedCAFile, c.AllowPlaintext = "a", true
		}, "ListenClientHTTPURLs http://0.0.0.0:1 would accept clients without the certificate"},
		{"a way round it on this machine", func(c *Config) {
			c.ListenClientURLs, c.ListenClientHTTPURLs, c.ClientTLS = []string{"https://a:1", "unix:///a"}, []string{"http://localhost:1"}, certified
			c.ClientTLS.TrustedCAFile = "a"
		}, ""},
		{"metrics are open", func(c *Config) {
			c.ListenClientURLs, c.ListenMetricsURLs, c.ClientTLS = []string{"https://a:1"}, []string{"http://localhost:1"}, certified
			c.ClientTLS.TrustedCAFile = "a"
		}, ""},
		{"https for peers", func(c *Config) { c.PeerTLS = tlsconf.Config{Auto: true} }, ""},
		{"https for peers without TLS", func(c *Config) { c.ListenPeerURLs = []string{"https://localhost:1"} }, "needs PeerTLS.CertFile"},
		{"http for peers with TLS", func(c *Config) {
			c.ListenPeerURLs, c.PeerTLS = []string{"http://localhost:1"}, tlsconf.Config{Auto: true}
		}, "ListenPeerURLs http://localhost:1 must be https"},
		{"a member without TLS", func(c *Config) {
			c.PeerTLS = tlsconf.Config{Auto: true}
			c.Node.Cluster = append(member("default", "https://localhost:2380"), member("b", "http://b:1")...)
		}, "Node.Cluster http://b:1 must be https"},
		{"peers without authority", func(c *Config) { c.PeerTLS = certified }, "PeerTLS.CertFile needs PeerTLS.TrustedCAFile"},
		{"TLS 1.1", func(c *Config) { c.TLSMinVersion = "TLS1.1" }, "MinVersion"},
		{"a socket for clients", func(c *Config) { c.ListenClientURLs = []string{"unix://a:1"} }, ""},
		{"a socket without a path", func(c *Config) { c.ListenMetricsURLs = []string{"unix://"} }, `ListenMetricsURLs "unix://" must be unix:///path`},
		{"a socket with a long path", func(c *Config) { c.ListenClientURLs = []string{"unix:///" + strings.Repeat("a", 107)} }, "has a path of 108 bytes, and the system takes 107"},
		{"a socket with TLS and no certificate", func(c *Config) { c.ListenClientURLs = []string{"unixs:///a"} }, "ListenClientURLs unixs:///a needs ClientTLS.CertFile"},
		{"a socket for peers", func(c *Config) { c.ListenPeerURLs = []string{"unix://a:1"} }, "unix sockets are for clients"},
		{"a socket that peers are told", func(c *Config) { c.AdvertisePeerURLs = []string{"unix://a:1"} }, "unix sockets are for clients"},
		{"a socket alone in a cluster", func(c *Config) {
			c.ListenClientURLs = []string{"unix:///a"}
			c.Node.Cluster = []kvnode.Member{{Name: "default", PeerURLs: []string{"http://localhost:2380"}}, {Name: "b", PeerURLs: []string{"http://localhost:2382"}}}
		}, "Node.ClientURLs unix:///a: other members cannot pass requests on"},
		{"a socket beside an address in a cluster", func(c *Config) {
			c.ListenClientURLs = []string{"unix:///a", "http://localhost:2379"}
			c.Node.Cluster = []kvnode.Member{{Name: "default", PeerURLs: []string{"http://localhost:2380"}}, {Name: "b", PeerURLs: []string{"http://localhost:2382"}}}
		}, ""},
		{"no scheme", func(c *Config) { c.ListenClientURLs = []string{"localhost:1"} }, `must begin with http://`},
		{"no port", func(c *Config) { c.ListenMetricsURLs = []string{"http://localhost"} }, "with the port"},
		{"port too large", func(c *Config) { c.ListenMetricsURLs = []string{"http://localhost:65536"} }, `port "65536"`},
		{"path", func(c *Config) { c.ListenClientHTTPURLs = []string{"http://localhost:1/x"} }, "and nothing else"},
		{"not a URL", func(c *Config) { c.ListenClientURLs = []string{"http://[::1"} }, "is not a URL"},
		{"IPv6", func(c *Config) { c.ListenClientURLs = []string{"http://[::1]:1"} }, ""},
		{"clients may be told anything", func(c *Config) {
			c.ListenClientURLs, c.AllowPlaintext = []string{"http://0.0.0.0:1"}, true
		}, ""},
		{"peers cannot dial everywhere", func(c *Config) { c.ListenPeerURLs = []string{"http://0.0.0.0:1"} }, "unspecified address"},
		{"peers cannot dial port 0", func(c *Config) { c.ListenPeerURLs = []string{"http://localhost:0"} }, "port 0"},
		{"not a member", func(c *Config) { c.Node.Cluster = member("other", "http://a:1") }, `no member "default"`},
		{"other URLs", func(c *Config) { c.Node.Cluster = member("default", "http://a:1") }, "but AdvertisePeerURLs is"},
		{"one URL twice", func(c *Config) {
			c.Node.Cluster = append(member("default", "http://localhost:2380"), member("b", "http://localhost:2380")...)
		}, `to "default" and to "b"`},
		{"name with a comma", func(c *Config) { c.Node.Name = "a,b" }, "Node.Name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c Config
			test.set(&c)
			err := c.WithDefaults().Validate()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Validate() = %v, want %q", err, test.want)
			}
		})
	}
}

var certified = tlsconf.Config{CertFile: "c", KeyFile: "k"}

func member(name string, urls ...string) []kvnode.Member {
	return []kvnode.Member{{Name: name, PeerURLs: urls}}
}

func TestDataDir(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	etcd := filepath.Join(dir, "etcd")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.MkdirAll(filepath.Join(etcd, "member", "wal"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, dir, want string }{
		{"empty", dir, ""},
		{"missing", filepath.Join(dir, "a", "b"), ""},
		{"a file", file, "is a file"},
		{"below a file", filepath.Join(file, "a"), "not a directory"},
		{"etcd's", etcd, "etcd member, which kvnode cannot read; run etcd with it"},
		{"not writable", "/proc/1/kvnode", "Node.DataDir"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := CheckDataDir(test.dir)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("CheckDataDir(%s) = %v, want %q", test.dir, err, test.want)
			}
		})
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".kvnode-*")); len(left) > 0 {
		t.Errorf("CheckDataDir left %v behind", left)
	}
}

// Start rejects a wrong configuration or directory before it binds a port, and closes the
// listeners that were passed.
func TestStartRefuses(t *testing.T) {
	for name, c := range map[string]Config{
		"configuration": {API: etcdapi.Config{MaxTxnOps: -1}},
		"directory":     {Node: kvnode.Config{DataDir: "/proc/1/kvnode"}},
	} {
		l := ephemeral(t)
		c.ClientListener = l
		if _, err := Start(c); err == nil {
			t.Errorf("Start with a bad %s = nil, want an error", name)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Close() after Start with a bad %s = %v, want it closed already", name, err)
		}
	}
}

package settings

import (
	"math"
	"slices"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
)

// table holds every setting in the order of the help: the settings that kvnode honours, then
// etcd's renamed settings and the rest of etcd's settings (foreign.go).
var table = slices.Concat(memberTable, clusterTable, readTable, limitTable, connectionTable, securityTable, logTable, observeTable,
	otherTable, oldTable, foreignTable, v2Table)

var memberTable = []setting{
	row(member, "name", "Name of this member; unique in the cluster.",
		func(c *Config) value { return text(&c.Server.Node.Name) }),
	row(member, "data-dir", "Directory of the data. By default the name and \".kvnode\".",
		func(c *Config) value { return path(&c.Server.Node.DataDir) }),
	row(member, "listen-client-urls", "Where to listen for clients: gRPC, and HTTP unless that has URLs of its own.",
		func(c *Config) value { return urls(&c.Server.ListenClientURLs) }),
	row(member, "listen-client-http-urls", "Where to listen for HTTP (JSON gateway, /metrics, /health, /status and others) instead. By default --listen-client-urls.",
		func(c *Config) value { return urls(&c.Server.ListenClientHTTPURLs) }),
	row(member, "listen-redis-url", "Experimental. Where to serve the Redis protocol: http, or https with the certificate for clients. By default nowhere.",
		func(c *Config) value { return urls(&c.Server.ListenRedisURLs) }),
	row(member, "listen-peer-urls", "Where to listen for other members.",
		func(c *Config) value { return urls(&c.Server.ListenPeerURLs) }),
	row(member, "advertise-client-urls", "Where clients reach this member. By default --listen-client-urls.",
		func(c *Config) value { return urls(&c.Server.Node.ClientURLs) }),
}

var clusterStates = []string{"new", "existing"}

var clusterTable = []setting{
	row(clustering, "initial-advertise-peer-urls", "Where other members reach this one. By default --listen-peer-urls.",
		func(c *Config) value { return urls(&c.Server.AdvertisePeerURLs) }),
	row(clustering, "initial-cluster", "All members that make the cluster. By default this one alone.",
		func(c *Config) value { return members(&c.Server.Node.Cluster) }),
	row(clustering, "initial-cluster-state", "Whether to make a cluster or to join one.",
		func(c *Config) value { return words(&c.Server.Node.Existing, clusterStates, []bool{false, true}) }),
	row(clustering, "initial-cluster-token", "Sets clusters with equal members apart.",
		func(c *Config) value { return text(&c.Server.Node.Token) }),
	row(clustering, "heartbeat-interval", "Time between heartbeats of the leader.",
		func(c *Config) value { return milliseconds(&c.Server.Node.TickInterval) }),
	row(clustering, "election-timeout", "Silence of the leader after which another is elected.",
		func(c *Config) value { return milliseconds(&c.Server.Node.ElectionTimeout) }),
	row(clustering, "suspect-on-close", "Start an election when the leader's connections close and its promise has expired, without waiting for --election-timeout.",
		func(c *Config) value { return not(&c.Server.Node.IgnoreClosed) }),
	row(clustering, "suspect-on-silence", "Replace a leader that is silent twice as long as it was lately, without waiting for --election-timeout.",
		func(c *Config) value { return not(&c.Server.Node.IgnoreSilence) }),
	row(clustering, "supervise", "Experimental. Run the member as a child process, and notify the other members at once when it has exited; Linux only. It assumes that a process that has exited never executes another instruction: do not use it with checkpoint and restore. Alias: --guardian.",
		func(c *Config) value { return truth(&c.Supervise) }),
	row(clustering, "strict-reconfig-check", "Refuse changes of membership after which too few members may be up.",
		func(c *Config) value { return not(&c.Server.Node.LaxReconfig) }),
}

// readModes are the modes that may be the default: all but auto.
var (
	readModes     = []kvnode.ReadMode{kvnode.ReadLease, kvnode.ReadIndex, kvnode.ReadLog, kvnode.ReadSerializable}
	readModeNames = func() (names []string) {
		for _, m := range readModes {
			names = append(names, m.String())
		}
		return names
	}()
)

var readTable = []setting{
	row(reading, "read-mode", "How a read without a mode is made linearizable: under the leader lease, by a quorum round, through the log, or not at all.",
		func(c *Config) value { return words(&c.Server.Node.ReadMode, readModeNames, readModes) }),
	row(reading, "lease-duration", "How long voters promise to elect no other member. 0: 250ms, raised to 5 --heartbeat-interval and 2.5 --max-clock-skew. At most --election-timeout less 100ms or one --heartbeat-interval; that is the default where the clock does not count suspended time. The same on all members.",
		func(c *Config) value { return duration(&c.Server.Node.LeaseDuration) }),
	row(reading, "max-clock-skew", "How far two members' clocks drift apart at most over one --lease-duration. 0: 100ms, but at least a fifth of that duration, and at most two fifths, or what leaves two --heartbeat-interval. Too small: stale reads.",
		func(c *Config) value { return duration(&c.Server.Node.MaxClockSkew) }),
	row(reading, "max-drift-ppm", "Rate error of any one member's clock, which --max-clock-skew must cover. 0: 83333, what chrony may slew by.",
		func(c *Config) value { return number(&c.Server.Node.MaxDriftPPM, 0, 999_999) }),
	row(reading, "disable-lease", "As leader, serve no read under the lease. The member still promises, so others can.",
		func(c *Config) value { return truth(&c.Server.Node.DisableLease) }),
}

var limitTable = []setting{
	row(limits, "snapshot-count", "Entries after which a checkpoint is made and the log is compacted.",
		func(c *Config) value { return number(&c.Server.Node.SnapshotCount, 1, math.MaxInt64) }),
	row(limits, "snapshot-catchup-entries", "Entries that stay in the log for members that lag. At the default, 16 MiB of entries if these are more.",
		func(c *Config) value { return number(&c.Server.Node.CatchUpEntries, 1, math.MaxInt64) }),
	row(limits, "quota-backend-bytes", "Size of the store beyond which only deletions and compaction are accepted. 0: 2 GiB; negative: no limit.",
		func(c *Config) value { return signed(&c.Server.API.QuotaBytes) }),
	row(limits, "auto-compaction-mode", "How --auto-compaction-retention is meant.",
		func(c *Config) value {
			return oneOf(&c.Server.AutoCompactionMode, server.CompactPeriodic, server.CompactRevision)
		}),
	row(limits, "auto-compaction-retention", "History that compaction leaves: hours or a duration such as 30m, in mode revision a number of revisions. 0: all.",
		func(c *Config) value { return text(&c.Server.AutoCompactionRetention) }),
	row(limits, "corrupt-check-time", "How often the leader compares all members' data, and raises the alarm CORRUPT if it differs. 0: never.",
		func(c *Config) value { return duration(&c.Server.CorruptCheckTime) }),
	row(limits, "compact-hash-check-time", "The same for the feature CompactHashCheck.",
		func(c *Config) value { return duration(&c.Server.CompactHashCheckTime) }),
	row(limits, "max-request-bytes", "Largest request.",
		func(c *Config) value { return number(&c.Server.Node.MaxRequestBytes, 1, math.MaxInt32) }),
	row(limits, "max-txn-ops", "Most operations in one transaction.",
		func(c *Config) value { return number(&c.Server.API.MaxTxnOps, 1, math.MaxInt32) }),
	row(limits, "watch-progress-notify-interval", "Silence after which a watcher that asked for it hears how far it is. 0: 10 min.",
		func(c *Config) value { return duration(&c.Server.API.WatchProgressInterval) }),
}

var connectionTable = []setting{
	row(connection, "max-concurrent-streams", "Most requests under way on one connection, beyond which its client waits.",
		func(c *Config) value { return number(&c.Server.API.MaxConcurrentStreams, 1, math.MaxUint32) }),
	row(connection, "max-open-streams", "Most requests, watches and waits under way on all connections. Those of one connection (twice for a watch or a wait) plus those of all must not exceed it.",
		func(c *Config) value { return number(&c.Server.MaxOpenStreams, 16, math.MaxInt32) }),
	row(connection, "grpc-keepalive-min-time", "How often a client may ping.",
		func(c *Config) value { return duration(&c.Server.Keepalive.MinTime) }),
	row(connection, "grpc-keepalive-interval", "Silence after which the server pings a client. 0: never.",
		func(c *Config) value { return orNever(&c.Server.Keepalive.Interval) }),
	row(connection, "grpc-keepalive-timeout", "How long it waits for the answer.",
		func(c *Config) value { return duration(&c.Server.Keepalive.Timeout) }),
	row(connection, "enable-grpc-gateway", "Serve the JSON gateway where HTTP is served.",
		func(c *Config) value { return not(&c.Server.DisableGateway) }),
}

var logTable = []setting{
	row(logging, "log-level", "Least severe lines to log.",
		func(c *Config) value { return oneOf(&c.Log.Level, "debug", "info", "warn", "error", "panic", "fatal") }),
	row(logging, "log-format", "Form of the lines; console is another name for text.",
		func(c *Config) value { return oneOf(&c.Log.Format, "json", "text", "console") }),
	row(logging, "log-outputs", "Where to log: stderr, which is the default, stdout, or files.",
		func(c *Config) value { return outputs(&c.Log.Outputs) }),
}

var observeTable = []setting{
	row(observing, "listen-metrics-urls", "Where to serve /metrics, /health, /livez, /readyz, /version and /status besides. By default nowhere.",
		func(c *Config) value { return urls(&c.Server.ListenMetricsURLs) }),
	row(observing, "metrics", "Level of detail: extensive adds histograms of gRPC requests.",
		func(c *Config) value {
			return words(&c.Server.ExtensiveMetrics, []string{"basic", "extensive"}, []bool{false, true})
		}),
	row(observing, "warning-unary-request-duration", "How long a request may take before the log says so. 0: 300 ms.",
		func(c *Config) value { return duration(&c.Server.API.WarnRequest) }),
	row(observing, "warning-apply-duration", "The same for requests that only read, and for entries of the log to be applied. 0: 100 ms.",
		func(c *Config) value { return duration(&c.Server.Node.WarnApply) }),
	row(observing, "lease-trace", "File to append all to that the leader lease decides, for kvnode trace judge and bug reports. By default none.",
		func(c *Config) value { return filename(&c.Server.Node.LeaseTrace) }),
	row(observing, "lease-page", "Serve /lease where HTTP is served: a page that shows which member holds the leader lease, and what happens to it.",
		func(c *Config) value { return not(&c.Server.DisableLeasePage) }),
	row(observing, "enable-pprof", "Serve /debug/pprof/ on the client HTTP URLs.",
		func(c *Config) value { return truth(&c.Server.EnablePprof) }),
}

var otherTable = []setting{
	row(others, featureFlag, "Features of etcd, as name=true,...; see the end of this help.",
		func(c *Config) value { return featureSet(&c.features) }),
}

// noBinding is the reason why a peer's certificate is always verified.
const noBinding = "a peer's certificate is what binds a connection to a member"

// securityTable holds the TLS settings, with etcd's names.
var securityTable = []setting{
	row(security, "cert-file", "Certificate for clients, PEM; for URLs to listen on that are https.",
		func(c *Config) value { return filename(&c.Server.ClientTLS.CertFile) }),
	row(security, "key-file", "Its key.",
		func(c *Config) value { return filename(&c.Server.ClientTLS.KeyFile) }),
	row(security, "trusted-ca-file", "Authorities that sign clients' certificates. Each client needs one then.",
		func(c *Config) value { return filename(&c.Server.ClientTLS.TrustedCAFile) }),
	row(security, "client-cert-auth", "Ask each client for a certificate; needs --trusted-ca-file, which does the same alone.",
		func(c *Config) value { return truth(&c.Server.ClientTLS.ClientCertAuth) }),
	row(security, "client-crl-file", "Clients' certificates that were revoked.",
		func(c *Config) value { return filename(&c.Server.ClientTLS.CRLFile) }),
	row(security, "client-cert-allowed-hostname", "Host names; clients' certificates must be valid for one of them.",
		func(c *Config) value { return list(&c.Server.ClientTLS.AllowedHostnames, "names") }),
	row(security, "client-cert-file", "Certificate with which this member passes requests on to the leader. By default --cert-file.",
		func(c *Config) value { return filename(&c.Server.ClientTLS.ClientCertFile) }),
	row(security, "client-key-file", "Its key.",
		func(c *Config) value { return filename(&c.Server.ClientTLS.ClientKeyFile) }),
	row(security, "auto-tls", "Make a self-signed certificate for clients.",
		func(c *Config) value { return truth(&c.Server.ClientTLS.Auto) }),
	row(security, "peer-cert-file", "Certificate for peers, PEM. It must be valid for the host of --initial-advertise-peer-urls.",
		func(c *Config) value { return filename(&c.Server.PeerTLS.CertFile) }),
	row(security, "peer-key-file", "Its key.",
		func(c *Config) value { return filename(&c.Server.PeerTLS.KeyFile) }),
	row(security, "peer-trusted-ca-file", "Authorities that sign peers' certificates.",
		func(c *Config) value { return filename(&c.Server.PeerTLS.TrustedCAFile) }),
	row(security, "peer-client-cert-auth", "Ask each peer for a certificate; --peer-trusted-ca-file does so alone.",
		func(c *Config) value { return truth(&c.Server.PeerTLS.ClientCertAuth) }),
	row(security, "peer-crl-file", "Peers' certificates that were revoked.",
		func(c *Config) value { return filename(&c.Server.PeerTLS.CRLFile) }),
	row(security, "peer-cert-allowed-cn", "Common names; peers' certificates must have one of them.",
		func(c *Config) value { return list(&c.Server.PeerTLS.AllowedCNs, "names") }),
	row(security, "peer-cert-allowed-hostname", "Host names; peers' certificates must be valid for one of them.",
		func(c *Config) value { return list(&c.Server.PeerTLS.AllowedHostnames, "names") }),
	row(security, "peer-client-cert-file", "Certificate with which this member connects to peers. By default --peer-cert-file.",
		func(c *Config) value { return filename(&c.Server.PeerTLS.ClientCertFile) }),
	row(security, "peer-client-key-file", "Its key.",
		func(c *Config) value { return filename(&c.Server.PeerTLS.ClientKeyFile) }),
	row(security, "peer-auto-tls", "Make a self-signed certificate for peers. It encrypts, and authenticates no peer.",
		func(c *Config) value { return truth(&c.Server.PeerTLS.Auto) }),
	row(security, "self-signed-cert-validity", "Years for which --auto-tls and --peer-auto-tls make certificates.",
		func(c *Config) value { return number(&c.Server.SelfSignedYears, 1, 100) }),
	row(security, "cipher-suites", "Cipher suites for TLS 1.2, with Go's names. By default Go's choice.",
		func(c *Config) value { return list(&c.Server.TLSCipherSuites, "names") }),
	row(security, "tls-min-version", "Oldest version of TLS to speak.",
		func(c *Config) value { return oneOf(&c.Server.TLSMinVersion, "TLS1.2", "TLS1.3") }),
	row(security, "tls-max-version", "Newest version of TLS to speak. By default the newest there is.",
		func(c *Config) value { return orNone(&c.Server.TLSMaxVersion, "TLS1.2", "TLS1.3") }),
	row(security, "allow-plaintext", "Allow http URLs to listen on that are not on loopback.",
		func(c *Config) value { return truth(&c.Server.AllowPlaintext) }),
	row(security, "host-whitelist", "Host names that requests over HTTP without TLS may be for, besides localhost and those in this member's URLs; * is all.",
		func(c *Config) value { return list(&c.Server.HostWhitelist, "names") }),
	{name: "peer-skip-client-san-verification", refused: noBinding, etcd: "false", bool: true},
}

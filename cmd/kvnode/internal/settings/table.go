package settings

import (
	"math"
	"slices"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/autocompact"
)

// table is every setting, in the order of the help: those that are honoured,
// then what etcd calls otherwise now (old.go)
// and what kvnode knows of etcd's others (foreign.go, v2.go).
var table = slices.Concat(memberTable, clusterTable, readTable, limitTable, connectionTable, securityTable, logTable, observeTable,
	otherTable, oldTable, foreignTable, v2Table)

var memberTable = []setting{
	{
		name: "name", topic: member, usage: "Name of this member; unique in the cluster.",
		field: func(c *Config) value { return text(&c.Server.Node.Name) },
	},
	{
		name: "data-dir", topic: member, usage: "Directory of the data. By default the name and \".kvnode\".",
		field: func(c *Config) value { return path(&c.Server.Node.DataDir) },
	},
	{
		name: "listen-client-urls", topic: member, usage: "Where to listen for clients: gRPC, and HTTP unless that has URLs of its own.",
		field: func(c *Config) value { return urls(&c.Server.ListenClientURLs) },
	},
	{
		name: "listen-client-http-urls", topic: member,
		usage: "Where to listen for HTTP (JSON gateway, /metrics, /health, /status and others) instead. By default --listen-client-urls.",
		field: func(c *Config) value { return urls(&c.Server.ListenClientHTTPURLs) },
	},
	{
		name: "listen-peer-urls", topic: member, usage: "Where to listen for other members.",
		field: func(c *Config) value { return urls(&c.Server.ListenPeerURLs) },
	},
	{
		name: "advertise-client-urls", topic: member, usage: "Where clients reach this member. By default --listen-client-urls.",
		field: func(c *Config) value { return urls(&c.Server.Node.ClientURLs) },
	},
}

var clusterStates = []string{"new", "existing"}

var clusterTable = []setting{
	{
		name: "initial-advertise-peer-urls", topic: clustering, usage: "Where other members reach this one. By default --listen-peer-urls.",
		field: func(c *Config) value { return urls(&c.Server.AdvertisePeerURLs) },
	},
	{
		name: "initial-cluster", topic: clustering, usage: "All members that make the cluster. By default this one alone.",
		field: func(c *Config) value { return members(&c.Server.Node.Cluster) },
	},
	{
		name: "initial-cluster-state", topic: clustering, usage: "Whether to make a cluster or to join one.",
		field: func(c *Config) value { return words(&c.Server.Node.Existing, clusterStates, []bool{false, true}) },
	},
	{
		name: "initial-cluster-token", topic: clustering, usage: "Sets clusters with equal members apart.",
		field: func(c *Config) value { return text(&c.Server.Node.Token) },
	},
	{
		name: "heartbeat-interval", topic: clustering, usage: "Time between heartbeats of the leader.",
		field: func(c *Config) value { return milliseconds(&c.Server.Node.TickInterval) },
	},
	{
		name: "election-timeout", topic: clustering, usage: "Silence of the leader after which another is elected.",
		field: func(c *Config) value { return milliseconds(&c.Server.Node.ElectionTimeout) },
	},
	{
		name: "strict-reconfig-check", topic: clustering, usage: "Refuse changes of membership after which too few members may be up.",
		field: func(c *Config) value { return not(&c.Server.Node.LaxReconfig) },
	},
}

// readModes are those that a default may be: all but auto.
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
	{
		name: "read-mode", topic: reading,
		usage: "How a read is made linearizable that does not say: under the leader lease, by a quorum round, through the log, or not at all.",
		field: func(c *Config) value { return words(&c.Server.Node.ReadMode, readModeNames, readModes) },
	},
	{
		name: "lease-duration", topic: reading,
		usage: "How long voters promise to help nobody else. 0: --election-timeout less one --heartbeat-interval. The same on all members.",
		field: func(c *Config) value { return duration(&c.Server.Node.LeaseDuration) },
	},
	{
		name: "max-clock-skew", topic: reading,
		usage: "How far two members' clocks drift apart at most over one --lease-duration. 0: a fifth of it. Too small: stale reads.",
		field: func(c *Config) value { return duration(&c.Server.Node.MaxClockSkew) },
	},
	{
		name: "max-drift-ppm", topic: reading,
		usage: "Rate error of any one member's clock, which --max-clock-skew must cover. 0: 83333, what chrony may slew by.",
		field: func(c *Config) value { return number(&c.Server.Node.MaxDriftPPM, 0, 999_999) },
	},
	{
		name: "disable-lease", topic: reading, usage: "Serve no read under the lease. The member still promises, so others can.",
		field: func(c *Config) value { return truth(&c.Server.Node.DisableLease) },
	},
}

var limitTable = []setting{
	{
		name: "snapshot-count", topic: limits, usage: "Entries after which a checkpoint is made and the log is compacted.",
		field: func(c *Config) value { return number(&c.Server.Node.SnapshotCount, 1, math.MaxInt64) },
	},
	{
		name: "snapshot-catchup-entries", topic: limits, usage: "Entries that stay in the log for members that lag.",
		field: func(c *Config) value { return number(&c.Server.Node.CatchUpEntries, 1, math.MaxInt64) },
	},
	{
		name: "quota-backend-bytes", topic: limits,
		usage: "Size of the store beyond which only deletions and compaction are accepted. 0: 2 GiB; negative: no limit.",
		field: func(c *Config) value { return signed(&c.Server.API.QuotaBytes) },
	},
	{
		name: "auto-compaction-mode", topic: limits, usage: "How --auto-compaction-retention is meant.",
		field: func(c *Config) value {
			return oneOf(&c.Server.AutoCompactionMode, autocompact.Periodic, autocompact.Revision)
		},
	},
	{
		name: "auto-compaction-retention", topic: limits,
		usage: "History that compaction leaves: hours or a duration such as 30m, in mode revision a number of revisions. 0: all.",
		field: func(c *Config) value { return text(&c.Server.AutoCompactionRetention) },
	},
	{
		name: "corrupt-check-time", topic: limits,
		usage: "How often the leader compares all members' data, and raises the alarm CORRUPT if it differs. 0: never.",
		field: func(c *Config) value { return duration(&c.Server.CorruptCheckTime) },
	},
	{
		name: "compact-hash-check-time", topic: limits, usage: "The same for the feature CompactHashCheck.",
		field: func(c *Config) value { return duration(&c.Server.CompactHashCheckTime) },
	},
	{
		name: "max-request-bytes", topic: limits, usage: "Largest request.",
		field: func(c *Config) value { return number(&c.Server.Node.MaxRequestBytes, 1, math.MaxInt32) },
	},
	{
		name: "max-txn-ops", topic: limits, usage: "Most operations in one transaction.",
		field: func(c *Config) value { return number(&c.Server.API.MaxTxnOps, 1, math.MaxInt32) },
	},
	{
		name: "watch-progress-notify-interval", topic: limits,
		usage: "Silence after which a watcher that asked for it hears how far it is. 0: 10 min.",
		field: func(c *Config) value { return duration(&c.Server.API.WatchProgressInterval) },
	},
}

var connectionTable = []setting{
	{
		name: "max-concurrent-streams", topic: connection, usage: "Most requests under way on one connection, beyond which its client waits.",
		field: func(c *Config) value { return number(&c.Server.API.MaxConcurrentStreams, 1, math.MaxUint32) },
	},
	{
		name: "max-open-streams", topic: connection, usage: "Most requests, watches and waits under way on all connections; one may have as many as all leave free.",
		field: func(c *Config) value { return number(&c.Server.MaxOpenStreams, 16, math.MaxInt32) },
	},
	{
		name: "grpc-keepalive-min-time", topic: connection, usage: "How often a client may ping.",
		field: func(c *Config) value { return duration(&c.Server.Keepalive.MinTime) },
	},
	{
		name: "grpc-keepalive-interval", topic: connection, usage: "Silence after which the server pings a client. 0: never.",
		field: func(c *Config) value { return orNever(&c.Server.Keepalive.Interval) },
	},
	{
		name: "grpc-keepalive-timeout", topic: connection, usage: "How long it waits for the answer.",
		field: func(c *Config) value { return duration(&c.Server.Keepalive.Timeout) },
	},
	{
		name: "enable-grpc-gateway", topic: connection, usage: "Serve the JSON gateway where HTTP is served.",
		field: func(c *Config) value { return not(&c.Server.DisableGateway) },
	},
}

var logTable = []setting{
	{
		name: "log-level", topic: logging, usage: "Least severe lines to log.",
		field: func(c *Config) value { return oneOf(&c.Log.Level, "debug", "info", "warn", "error", "panic", "fatal") },
	},
	{
		name: "log-format", topic: logging, usage: "Form of the lines; console is another name for text.",
		field: func(c *Config) value { return oneOf(&c.Log.Format, "json", "text", "console") },
	},
	{
		name: "log-outputs", topic: logging, usage: "Where to log: stderr, which is the default, stdout, or files.",
		field: func(c *Config) value { return outputs(&c.Log.Outputs) },
	},
}

var observeTable = []setting{
	{
		name: "listen-metrics-urls", topic: observing, usage: "Where to serve /metrics, /health, /livez, /readyz, /version and /status besides. By default nowhere.",
		field: func(c *Config) value { return urls(&c.Server.ListenMetricsURLs) },
	},
	{
		name: "metrics", topic: observing, usage: "Level of detail: extensive adds histograms of gRPC requests.",
		field: func(c *Config) value {
			return words(&c.Server.ExtensiveMetrics, []string{"basic", "extensive"}, []bool{false, true})
		},
	},
	{
		name: "warning-unary-request-duration", topic: observing, usage: "How long a request may take before the log says so. 0: 300 ms.",
		field: func(c *Config) value { return duration(&c.Server.API.WarnRequest) },
	},
	{
		name: "warning-apply-duration", topic: observing, usage: "The same for requests that only read, and for entries of the log to be applied. 0: 100 ms.",
		field: func(c *Config) value { return duration(&c.Server.Node.WarnApply) },
	},
	{
		name: "lease-trace", topic: observing, usage: "File to append all to that the leader lease decides, for kvnode trace judge and bug reports. By default none.",
		field: func(c *Config) value { return filename(&c.Server.Node.LeaseTrace) },
	},
	{
		name: "enable-pprof", topic: observing, usage: "Serve /debug/pprof/ where HTTP is served.",
		field: func(c *Config) value { return truth(&c.Server.EnablePprof) },
	},
}

var otherTable = []setting{
	{
		name: featureFlag, topic: others, usage: "Features of etcd, as name=true,...; see the end of this help.",
		field: func(c *Config) value { return featureGates(&c.gates) },
	},
}

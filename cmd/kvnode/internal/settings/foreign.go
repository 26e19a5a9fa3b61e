package settings

// Reasons that several settings share.
const (
	noAuth      = "there is no authentication yet, which auth enable says clearly"
	noDiscovery = "clusters are made with --initial-cluster; there is no discovery service"
	noTracing   = "there is no tracing"
	forceNew    = "a cluster that has lost its majority is made anew from the data directory of a member that is left: stop that member, " +
		"then for each member of the new cluster run kvnode snapshot restore with --bump-revision and --mark-compacted on that directory, " +
		"which loses nothing (docs/operations/repair.md, A majority is lost for good)"
	noLimit = "nothing depends on it: kvnode stores checkpoints, not each write"
	noFiles = "old files go when a checkpoint no longer needs them"
)

// foreignTable is what etcd 3.7 has and kvnode does not do.
var foreignTable = []setting{
	// Leaving these out would do harm.
	{name: "wal-dir", refused: "the log lies in the data directory; mount a disk there"},
	{name: "pre-vote", refused: "the leader lease depends on it", etcd: "true", bool: true},
	{name: "force-new-cluster", refused: forceNew, etcd: "false", bool: true},
	{name: "memory-mlock", refused: "memory is not locked", etcd: "false", bool: true},
	{name: "socket-reuse-port", refused: "two processes on one port would share clients by chance", etcd: "false", bool: true},
	{name: "enable-log-rotation", refused: "log files are left to logrotate and its like", etcd: "false", bool: true},
	{name: "enable-distributed-tracing", refused: noTracing, etcd: "false", bool: true},
	{name: "discovery-endpoints", refused: noDiscovery},
	{name: "discovery-token", refused: noDiscovery, secret: true},
	{name: "discovery", refused: noDiscovery},       // in the help, though etcd
	{name: "discovery-proxy", refused: noDiscovery}, // takes neither any more
	{name: "discovery-srv", refused: noDiscovery},

	// Leaving these out is harmless.
	{name: "unsafe-no-fsync", ignored: "kvnode always syncs", etcd: "false", bool: true},
	{name: "initial-election-tick-advance", ignored: "members campaign at once in a new cluster, and after a restart as soon as their restart hold is over", etcd: "true", bool: true},
	{name: "socket-reuse-address", ignored: "Go always does so", etcd: "false", bool: true},
	{name: "max-snapshots", ignored: noFiles, etcd: "5"},
	{name: "max-wals", ignored: noFiles, etcd: "5"},
	{name: "backend-batch-interval", ignored: noLimit, etcd: "0s"},
	{name: "backend-batch-limit", ignored: noLimit, etcd: "0"},
	{name: "backend-bbolt-freelist-type", ignored: noLimit},
	{name: "bootstrap-defrag-threshold-megabytes", ignored: noLimit, etcd: "0"},
	{name: "compaction-batch-limit", ignored: noLimit, etcd: "0"},
	{name: "compaction-sleep-interval", ignored: noLimit, etcd: "0s"},
	{name: "raft-read-timeout", ignored: "peers' connections are watched otherwise", etcd: "5s"},
	{name: "raft-write-timeout", ignored: "peers' connections are watched otherwise", etcd: "5s"},
	{name: "downgrade-check-time", ignored: "there are no downgrades", etcd: "5s"},
	{name: "max-learners", refused: "a cluster has one learner at a time at most", etcd: "1"},
	{name: "auth-token", ignored: noAuth, etcd: "simple"},
	{name: "auth-token-ttl", ignored: noAuth, etcd: "300"},
	{name: "bcrypt-cost", ignored: noAuth, etcd: "10"},
	{name: "cors", ignored: "no other origin is allowed, whatever it says", etcd: "*"},
	{name: "logger", ignored: "there is only one", etcd: "zap"},
	{
		name: "log-rotation-config-json", ignored: "log files are not rotated",
		etcd: `{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`,
	},
	{name: "distributed-tracing-address", ignored: noTracing, etcd: "localhost:4317"},
	{name: "distributed-tracing-service-name", ignored: noTracing, etcd: "etcd"},
	{name: "distributed-tracing-instance-id", ignored: noTracing},
	{name: "distributed-tracing-sampling-rate", ignored: noTracing, etcd: "0"},
	{name: "discovery-srv-name", ignored: noDiscovery},
	{name: "discovery-fallback", ignored: noDiscovery, etcd: "exit"},
	{name: "discovery-dial-timeout", ignored: noDiscovery, etcd: "2s"},
	{name: "discovery-request-timeout", ignored: noDiscovery, etcd: "5s"},
	{name: "discovery-keepalive-time", ignored: noDiscovery, etcd: "2s"},
	{name: "discovery-keepalive-timeout", ignored: noDiscovery, etcd: "6s"},
	{name: "discovery-insecure-transport", ignored: noDiscovery, etcd: "true", bool: true},
	{name: "discovery-insecure-skip-tls-verify", ignored: noDiscovery, etcd: "false", bool: true},
	{name: "discovery-cert", ignored: noDiscovery},
	{name: "discovery-key", ignored: noDiscovery},
	{name: "discovery-cacert", ignored: noDiscovery},
	{name: "discovery-user", ignored: noDiscovery, secret: true},
	{name: "discovery-password", ignored: noDiscovery, secret: true},
	{name: "v2-deprecation", ignored: "there is no v2 store", etcd: "gone"},
}

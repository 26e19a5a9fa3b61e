package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Reasons that several settings share.
const (
	noAuth      = "there is no authentication yet, which auth enable says clearly"
	noDiscovery = "clusters are made with --initial-cluster; there is no discovery service"
	noTracing   = "there is no tracing"
	forceNew    = "a cluster that has lost its majority is made anew from the data directory of a member that is left: stop that member, " +
		"then for each member of the new cluster run kvnode snapshot restore with --bump-revision and --mark-compacted on that directory " +
		"(docs/operations/repair.md, A majority is lost for good)"
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
	{name: "discovery", refused: noDiscovery},       // etcd still shows these two in its help,
	{name: "discovery-proxy", refused: noDiscovery}, // and accepts neither
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

// featureFlag is the setting that features are switched with.
const featureFlag = "feature-gates"

// oldTable has the old names of settings: etcd's up to 3.6, and kvnode's own. They are accepted with a
// warning.
var oldTable = slices.Concat(
	renamed(
		"bootstrap-defrag-threshold-megabytes", "compact-hash-check-time", "compaction-batch-limit", "compaction-sleep-interval",
		"corrupt-check-time", "distributed-tracing-address", "distributed-tracing-instance-id", "distributed-tracing-sampling-rate",
		"distributed-tracing-service-name", "downgrade-check-time", "enable-distributed-tracing", "enable-v2v3", "max-learners", "memory-mlock",
		"peer-skip-client-san-verification", "snapshot-catchup-entries", "warning-apply-duration", "warning-unary-request-duration",
		"watch-progress-notify-interval",
	),
	[]setting{
		{name: "experimental-snapshot-catch-up-entries", now: "snapshot-catchup-entries"}, // so in files
		{name: "guardian", now: "supervise", bool: true},                                  // kvnode up to 0.1
		became("compact-hash-check-enabled", compactHashCheck),
		became("enable-lease-checkpoint", leaseCheckpoint),
		became("enable-lease-checkpoint-persist", leaseCheckpointPersist),
		became("initial-corrupt-check", initialCorruptCheck),
		became("stop-grpc-service-on-defrag", "StopGRPCServiceOnDefrag"),
		became("txn-mode-write-with-shared-buffer", "TxnModeWriteWithSharedBuffer"),
	},
)

const experimental = "experimental-"

// renamed returns the old names of settings that have lost a prefix.
func renamed(names ...string) (rows []setting) {
	for _, name := range names {
		rows = append(rows, setting{name: experimental + name, now: name})
	}
	return rows
}

// became is an old setting that is a feature now.
func became(name, feature string) setting {
	return setting{name: experimental + name, now: featureFlag, feature: feature, bool: true}
}

// modernise turns the old names in one layer into today's.
func (l *Loaded) modernise(layer map[string]given) (errs []error) {
	for i := range oldTable {
		old := &oldTable[i]
		g, ok := layer[old.name]
		if !ok {
			continue
		}
		delete(layer, old.name)
		if old.feature != "" {
			g.text = old.feature + "=" + g.text
		}
		l.Warnings = append(l.Warnings, fmt.Sprintf("--%s is an old name, understood as --%s %s (from %s)", old.name, old.now, g.text, g.from))
		today, both := layer[old.now]
		switch {
		case !both:
			layer[old.now] = g
		case old.feature != "":
			layer[old.now] = given{today.text + "," + g.text, today.from + ", " + g.from}
		case today.text != g.text:
			errs = append(errs, fmt.Errorf("--%s %q (from %s) is not %q, as its old name --%s says (from %s); leave the old one out",
				old.now, today.text, today.from, g.text, old.name, g.from))
		}
	}
	return errs
}

// Reasons that the settings of etcd's v2 share.
const (
	noV2      = "etcd's v2 API is not there, as it is not in etcd 3.6: clients must speak v3 (ETCDCTL_API=3)"
	noV2Proxy = "there is no v2 proxy: let clients name the members as their endpoints, or put etcd grpc-proxy before them"
)

// v2Table holds the settings that no version of etcd after 3.5 has. Many scripts set them to their defaults, which
// asks for nothing.
var v2Table = []setting{
	{name: "enable-v2", refused: noV2, etcd: "false", bool: true},
	{name: "enable-v2v3", refused: noV2},
	{name: "proxy", refused: noV2Proxy, etcd: "off"},
	{name: "proxy-failure-wait", ignored: noV2Proxy, etcd: "5000"},
	{name: "proxy-refresh-interval", ignored: noV2Proxy, etcd: "30000"},
	{name: "proxy-dial-timeout", ignored: noV2Proxy, etcd: "1000"},
	{name: "proxy-write-timeout", ignored: noV2Proxy, etcd: "5000"},
	{name: "proxy-read-timeout", ignored: noV2Proxy, etcd: "0"},
}

// feature is a feature of etcd. It is honoured unless one of refused and ignored
// says why not.
type feature struct {
	etcd bool // etcd's default
	// refused says why it cannot be on, ignored why it makes no difference. Both
	// are to be read after "because".
	refused, ignored string
	// does says what it does, if it is honoured.
	does string
}

const (
	compactHashCheck       = "CompactHashCheck"
	initialCorruptCheck    = "InitialCorruptCheck"
	leaseCheckpoint        = "LeaseCheckpoint"
	leaseCheckpointPersist = "LeaseCheckpointPersist"
	// ttlCheckpoint is how often LeaseCheckpoint saves a TTL lease, as in etcd.
	ttlCheckpoint = 5 * time.Minute
)

// features are etcd 3.7's.
var features = map[string]feature{
	"AllAlpha":                     {refused: "it stands for some that cannot be; name those that are meant"},
	"AllBeta":                      {ignored: "those are on by default"},
	compactHashCheck:               {does: "the leader compares all members each --compact-hash-check-time, too"},
	"FastLeaseKeepAlive":           {etcd: true, ignored: "no keep-alive waits under a valid leader lease"},
	initialCorruptCheck:            {does: "a member compares its data with the others' before it serves"},
	leaseCheckpoint:                {does: "the next leader knows what was left of TTL leases longer than 5 min"},
	leaseCheckpointPersist:         {does: "comes with " + leaseCheckpoint + ", which it needs"},
	"PriorityRequest":              {ignored: "no request goes before those that came first"},
	"SetMemberLocalAddr":           {refused: "peers are dialled from any address"},
	"StopGRPCServiceOnDefrag":      {ignored: "a member serves while it defragments"},
	"TxnModeWriteWithSharedBuffer": {etcd: true, ignored: "there is no such buffer"},
}

// featureSet takes Name=true and the like.
func featureSet(field *string) value {
	return &bound[string]{field, "name=bool,...", checkFeatures, func(s string) string { return s }}
}

func checkFeatures(s string) (string, error) {
	on, err := parseFeatures(s)
	if err == nil && on[leaseCheckpointPersist] && !on[leaseCheckpoint] {
		err = fmt.Errorf("feature %s needs %s=true", leaseCheckpointPersist, leaseCheckpoint)
	}
	return s, err
}

// parseFeatures parses the value of --feature-gates.
func parseFeatures(s string) (map[string]bool, error) {
	said := make(map[string]bool)
	for _, part := range Split(s) {
		name, state, _ := strings.Cut(part, "=")
		g, ok := features[name]
		if !ok {
			return nil, fmt.Errorf("there is no feature %q%s, only %s", name, Hint(name, slices.Collect(maps.Keys(features)), "%s"), strings.Join(slices.Sorted(maps.Keys(features)), ", "))
		}
		on, err := parseBool(state)
		if err != nil {
			return nil, fmt.Errorf("feature %s: %w", name, err)
		}
		if on && g.refused != "" {
			return nil, fmt.Errorf("feature %s cannot be on because %s", name, g.refused)
		}
		if before, ok := said[name]; ok && before != on {
			return nil, fmt.Errorf("feature %s is said to be both true and false", name)
		}
		said[name] = on
	}
	return said, nil
}

// applyFeatures does what the features ask for, and says which have no effect.
func (l *Loaded) applyFeatures() {
	said, _ := parseFeatures(l.features) // Set has checked it
	if said[leaseCheckpoint] {
		l.Server.Node.TTLCheckpoint = ttlCheckpoint
	}
	l.Server.InitialCorruptCheck, l.Server.CompactHashCheck = said[initialCorruptCheck], said[compactHashCheck]
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if g := features[name]; g.ignored != "" && said[name] != g.etcd {
			l.Warnings = append(l.Warnings, fmt.Sprintf("feature %s=%v has no effect because %s (from %s)", name, said[name], g.ignored, l.from[featureFlag]))
		}
	}
}

// fate says what becomes of a feature, for the help.
func (g feature) fate() string {
	switch {
	case g.refused != "":
		return " cannot be on: " + g.refused
	case g.ignored != "":
		return " has no effect: " + g.ignored
	default:
		return ": " + g.does
	}
}

package settings

import (
	"fmt"
	"slices"
)

// featureFlag is the setting that features are switched with.
const featureFlag = "feature-gates"

// oldTable has the old names of settings: etcd's up to 3.6, and kvnode's own. They
// are accepted with a warning.
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

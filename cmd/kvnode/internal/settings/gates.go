package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// gate is a feature of etcd.
type gate struct {
	etcd bool // etcd's default
	// refused says why it cannot be on; else it makes no difference.
	refused string
}

const noComparison = "members are not compared by themselves; etcdctl endpoint hashkv does it"

// gates are etcd 3.7's.
var gates = map[string]gate{
	"AllAlpha":                     {},
	"AllBeta":                      {},
	"CompactHashCheck":             {refused: noComparison},
	"FastLeaseKeepAlive":           {etcd: true},
	"InitialCorruptCheck":          {refused: noComparison},
	"LeaseCheckpoint":              {},
	"LeaseCheckpointPersist":       {},
	"PriorityRequest":              {},
	"SetMemberLocalAddr":           {refused: "peers are dialled from any address"},
	"StopGRPCServiceOnDefrag":      {},
	"TxnModeWriteWithSharedBuffer": {etcd: true},
}

// featureGates takes Name=true and the like. The features are etcd's own and about how it
// works inside; kvnode has none, so that they are checked and then forgotten.
func featureGates(field *string) value {
	return &bound[string]{field, "name=bool,...", parseGates, func(s string) string { return s }}
}

func parseGates(s string) (string, error) {
	for _, part := range split(s) {
		name, state, _ := strings.Cut(part, "=")
		g, ok := gates[name]
		if !ok {
			return "", fmt.Errorf("there is no feature %q, only %s", name, strings.Join(slices.Sorted(maps.Keys(gates)), ", "))
		}
		on, err := parseBool(state)
		if err != nil {
			return "", fmt.Errorf("feature %s: %w", name, err)
		}
		if on && g.refused != "" {
			return "", fmt.Errorf("feature %s cannot be on because %s", name, g.refused)
		}
	}
	return s, nil
}

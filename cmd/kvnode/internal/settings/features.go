package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

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

// parseFeatures returns what is said of which feature.
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

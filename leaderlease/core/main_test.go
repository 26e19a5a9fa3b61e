package core

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms  = Instant(time.Millisecond)
	sec = Instant(time.Second)
)

// testParams are round numbers: a lease granted for a probe sent at s is usable
// before s+800ms and ends at s+1s.
var testParams = Params{
	ID:              1,
	Duration:        time.Second,
	MaxClockSkew:    200 * time.Millisecond,
	TransferTimeout: 1200 * time.Millisecond,
}

// voters is a configuration that is not joint.
func voters(ids ...uint64) quorum.JointConfig { return joint(ids, nil) }

func joint(incoming, outgoing []uint64) quorum.JointConfig {
	return Voters(&raftpb.ConfState{Voters: incoming, VotersOutgoing: outgoing})
}

// leading returns the lease of node 1 that leads cfg in term 5 since start and
// has committed in it.
func leading(start Instant, cfg quorum.JointConfig) *Lease {
	l := NewLease(testParams)
	l.SetVoters(cfg)
	l.Lead(5, start)
	l.OwnTermCommitted()
	return l
}

// grants counts an answer to a probe sent at sent from each of ids, which
// arrives at now.
func grants(l *Lease, sent, now Instant, ids ...uint64) {
	for _, id := range ids {
		l.Count(id, l.Term(), Grant{Sent: sent, Duration: testParams.Duration}, now)
	}
}

// bruteEnd is the end of the lease by definition: over every set of nodes that
// is a quorum, the instant before which none of the set is free, and of those
// the newest. It shares nothing with the quorum package but the type.
func bruteEnd(cfg quorum.JointConfig, promised map[uint64]Instant) Instant {
	ids := sortedIDs(cfg)
	var end Instant
	for set := range 1 << len(ids) {
		until := Forever
		in := make(map[uint64]bool)
		for i, id := range ids {
			if set&(1<<i) != 0 {
				in[id] = true
				until = min(until, promised[id])
			}
		}
		if bruteQuorum(cfg, in) {
			end = max(end, until)
		}
	}
	return end
}

// bruteQuorum reports whether the nodes in the set win an election in cfg.
func bruteQuorum(cfg quorum.JointConfig, in map[uint64]bool) bool {
	if len(cfg[0]) == 0 {
		return false
	}
	for _, half := range cfg {
		have := 0
		for id := range half {
			if in[id] {
				have++
			}
		}
		if len(half) > 0 && 2*have <= len(half) {
			return false
		}
	}
	return true
}

func sortedIDs(cfg quorum.JointConfig) []uint64 {
	var ids []uint64
	for _, half := range cfg {
		for id := range half {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

package sim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// controls break one assumption each. They are the negative controls of the simulation: each
// oracle must fail when its assumption is broken.
var controls = map[string]func(*Schedule){
	"clocks":   func(s *Schedule) { s.Swarm.BeyondPPM = 300_000 },
	"margin":   func(s *Schedule) { s.Swarm.NoMargin = true },
	"stock":    func(s *Schedule) { s.Swarm.Stock = ^uint64(0) },
	"suspend":  func(s *Schedule) { s.Swarm.StopsClock = true },
	"forget":   func(s *Schedule) { s.Swarm.Without = "DurableConf" },
	"no-hints": func(s *Schedule) { s.Swarm.Without = "CommitHints" },
	"proof":    func(s *Schedule) { s.Swarm.Without = "RecoverCommit" },
}

func TestControls(t *testing.T) {
	skipShort(t)
	for _, c := range []struct {
		name, claim string
		seeds       uint64
		oracles     []string
	}{
		{"clocks", "rates beyond the configured bound", 100, []string{"disjoint", "stale"}},
		{"margin", "no margin for rates within the bound", 200, []string{"disjoint", "stale"}},
		{"stock", "raft's own ReadOnlyLeaseBased", 20, []string{"stale"}},
		{"suspend", "clocks that stop under suspend (A2)", 100, []string{"disjoint", "stale"}},
		{"forget", "changes of membership that a crash forgets", 200, []string{"liveness"}},
		{"no-hints", "raft's own elections after a leader removed itself", 200, []string{"liveness"}},
		{"proof", "commit indexes that a crash forgets and the log proves", 50, []string{"disjoint", "stale", "raft"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := firstViolation(t, Config{Amend: controls[c.name]}, c.seeds)
			if !slices.Contains(c.oracles, r.Violation.Oracle) {
				t.Errorf("%s: %s, want one of %v", c.claim, r.Line(), c.oracles)
			}
		})
	}
}

// ReadIndex reads are right with any clocks, also on followers. Here leaders have far too slow
// clocks, each in a minority that cannot elect a leader.
func TestReadIndexTrustsNoClock(t *testing.T) {
	skipShort(t)
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	sum := &Result{}
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(t, Config{Seed: seed, Amend: slowMinorities, IndexReads: true})
		r.Require(t)
		sum.Add(r)
	}
	if n := sum.Reads[leaderlease.PathForwarded]; n == 0 {
		t.Error("no read was forwarded")
	}
}

func slowMinorities(s *Schedule) {
	w := &s.Swarm
	w.Voters, w.Learners, w.Spares, w.Plain, w.BeyondPPM = 5, 0, 0, 0, 700_000
	s.Faults = nil
	for at := 2 * time.Second; at < s.Duration; at += 8 * w.electionTimeout() {
		n := len(s.Faults)
		s.Faults = append(s.Faults,
			Fault{N: n + 1, At: at, Kind: "slow_leader"},
			Fault{N: n + 2, At: at + w.D/4, Kind: "halves", For: 4 * w.electionTimeout()})
	}
}

// checkpointer is a durable Machine: one in memory, with a checkpoint that survives the
// process.
type checkpointer struct {
	leasetest.Machine
	kept *checkpoints
	bug  string
}

// checkpoints is the durable state of a checkpointer.
type checkpoints struct {
	snap     *raftpb.Snapshot
	attempts int
}

func newCheckpointer(bug string) func(id uint64, conf *raftpb.ConfState) leasetest.Machine {
	return func(_ uint64, conf *raftpb.ConfState) leasetest.Machine {
		k := &checkpointer{Machine: leasetest.NewMemoryMachine(), kept: &checkpoints{}, bug: bug}
		if conf != nil {
			_ = k.Machine.Restore(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}})
		}
		k.keep()
		return k
	}
}

func (k *checkpointer) keep() { k.kept.snap, _ = k.Machine.Snapshot() }

const notDurable = "log compacted before the checkpoint is durable"

var errDisk = errors.New("the disk refuses")

func (k *checkpointer) Apply(e *raftpb.Entry, conf *raftpb.ConfState) leasetest.Outcome {
	out := k.Machine.Apply(e, conf)
	out.Sum = k.Applied()
	return out
}

func (k *checkpointer) Durable() bool { return true }

func (k *checkpointer) Checkpoint(committed func(index uint64) error) error {
	if k.kept.attempts++; k.kept.attempts%5 == 0 {
		if k.bug == notDurable {
			return nil
		}
		return errDisk
	}
	if k.bug == "does not ask the log" {
		k.keep()
		return nil
	}
	if err := committed(k.Applied()); err != nil {
		return err
	}
	k.keep()
	if k.bug == "index ahead of its content" {
		k.kept.snap.Metadata.Index = new(k.Applied() + 1)
	}
	return nil
}

func (k *checkpointer) Snapshot() (*raftpb.Snapshot, error) {
	if k.bug == notDurable {
		return k.Machine.Snapshot()
	}
	return k.kept.snap, nil
}

func (k *checkpointer) Restore(snap *raftpb.Snapshot) error {
	if k.kept.attempts++; k.kept.attempts%7 == 0 {
		return errDisk
	}
	if k.bug == "restore keeps old state" && k.Applied() > 1 {
		old, _ := k.Machine.Snapshot()
		snap = &raftpb.Snapshot{Data: old.GetData(), Metadata: snap.GetMetadata()}
	}
	if err := k.Machine.Restore(snap); err != nil {
		return err
	}
	if k.bug != "restore is not durable" {
		k.keep()
	}
	return nil
}

func (k *checkpointer) Reopen(*raftpb.Snapshot) (leasetest.Machine, error) {
	next := &checkpointer{Machine: leasetest.NewMemoryMachine(), kept: k.kept, bug: k.bug}
	return next, next.Machine.Restore(proto.CloneOf(k.kept.snap))
}

// A machine with checkpoints of its own, and with some failing writes, passes all oracles.
func TestDurableMachine(t *testing.T) {
	seeds := uint64(15)
	if testing.Short() {
		seeds = 1
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		Run(t, Config{Seed: seed, NewMachine: newCheckpointer(""), Compact: 5 * time.Second}).Require(t)
	}
}

// TestDurableMachineControls plants one bug each into a durable machine. The
// simulator finds them all.
func TestDurableMachineControls(t *testing.T) {
	skipShort(t)
	for _, c := range []struct {
		bug     string
		oracles []string
	}{
		{"does not ask the log", []string{"panic"}},
		{"index ahead of its content", []string{"panic", "raft"}},
		{notDurable, []string{"panic"}},
		{"restore is not durable", []string{"panic"}},
		{"restore keeps old state", []string{"stale", "raft"}},
	} {
		t.Run(c.bug, func(t *testing.T) {
			r := firstViolation(t, Config{NewMachine: newCheckpointer(c.bug), Compact: 5 * time.Second}, 50)
			if !slices.Contains(c.oracles, r.Violation.Oracle) {
				t.Errorf("%s, want one of the oracles %v", r.Line(), c.oracles)
			}
		})
	}
}

package sim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// keeper is a durable Machine: one in memory, with a checkpoint that survives the
// process.
type keeper struct {
	leasetest.Machine
	kept *keptState
	bug  string
}

// keptState is the durable state of a keeper.
type keptState struct {
	snap     *raftpb.Snapshot
	attempts int
}

func newKeeper(bug string) func(id uint64, conf *raftpb.ConfState) leasetest.Machine {
	return func(_ uint64, conf *raftpb.ConfState) leasetest.Machine {
		k := &keeper{Machine: leasetest.NewMemoryMachine(), kept: &keptState{}, bug: bug}
		if conf != nil {
			_ = k.Machine.Restore(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}})
		}
		k.keep()
		return k
	}
}

func (k *keeper) keep() { k.kept.snap, _ = k.Machine.Snapshot() }

const notDurable = "log compacted before the checkpoint is durable"

var errDisk = errors.New("the disk refuses")

func (k *keeper) Apply(e *raftpb.Entry, conf *raftpb.ConfState) leasetest.Outcome {
	out := k.Machine.Apply(e, conf)
	out.Sum = k.Applied()
	return out
}

func (k *keeper) Durable() bool { return true }

func (k *keeper) Checkpoint(committed func(index uint64) error) error {
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

func (k *keeper) Snapshot() (*raftpb.Snapshot, error) {
	if k.bug == notDurable {
		return k.Machine.Snapshot()
	}
	return k.kept.snap, nil
}

func (k *keeper) Restore(snap *raftpb.Snapshot) error {
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

func (k *keeper) Reopen(*raftpb.Snapshot) (leasetest.Machine, error) {
	next := &keeper{Machine: leasetest.NewMemoryMachine(), kept: k.kept, bug: k.bug}
	return next, next.Machine.Restore(proto.CloneOf(k.kept.snap))
}

// A machine with checkpoints of its own, and with some failing writes, passes all oracles.
func TestDurableMachine(t *testing.T) {
	seeds := uint64(15)
	if testing.Short() {
		seeds = 1
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		Run(t, Config{Seed: seed, NewMachine: newKeeper(""), Compact: 5 * time.Second}).Require(t)
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
			r := firstViolation(t, Config{NewMachine: newKeeper(c.bug), Compact: 5 * time.Second}, 50)
			if !slices.Contains(c.oracles, r.Violation.Oracle) {
				t.Errorf("%s, want one of the oracles %v", r.Line(), c.oracles)
			}
		})
	}
}

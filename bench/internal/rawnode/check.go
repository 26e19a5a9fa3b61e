package rawnode

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
)

// Arm is one way to ask "may this node answer a read?". Nothing is read, and no peer
// is asked over a network: an arm is the innermost layer of the benchmark.
type Arm struct {
	Name string
	// run does n operations.
	run func(n int) error
}

// Arms are all of them, on a running cluster that Close stops.
type Arms struct {
	List    []Arm
	cluster *Cluster
}

// StartArms returns the arms, ready to run. The others are compared with the first.
func StartArms(ctx context.Context) (*Arms, error) {
	c, err := Start(ctx, Lease)
	if err != nil {
		return nil, err
	}
	a := &Arms{cluster: c}
	safe, err := newTrio(raft.ReadOnlySafe)
	if err == nil {
		var based *trio
		if based, err = newTrio(raft.ReadOnlyLeaseBased); err == nil {
			a.List = a.arms(safe, based)
			return a, nil
		}
	}
	return nil, errors.Join(err, c.Close())
}

// Close stops the cluster.
func (a *Arms) Close() error { return a.cluster.Close() }

// sharers is how many reads share a check where reads arrive together.
const sharers = 16

func (a *Arms) arms(safe, based *trio) []Arm {
	system := clock.System()
	lease := a.cluster.Lease()
	tryRead := func() error {
		if _, s := lease.TryRead(); s != leaderlease.StatusValid {
			return fmt.Errorf("rawnode: the lease is %v", s)
		}
		return nil
	}
	ctx := context.Background()
	return []Arm{
		{"try-read", each(tryRead)},
		{"try-read-of-16", func(n int) error {
			return each(tryRead)((n + sharers - 1) / sharers)
		}},
		{"read", each(func() error {
			_, err := lease.Read(ctx)
			return err
		})},
		{"lease-clock", each(func() error {
			if system.Now() == 0 {
				return errors.New("rawnode: the clock fails")
			}
			return nil
		})},
		{"time-now", each(timeNow)},
		{"rwmutex-time-now", each(locked())},
		{"raft-lease-based", each(through(based))},
		{"raft-safe", each(through(safe))},
	}
}

func each(op func() error) func(n int) error {
	return func(n int) error {
		for range n {
			if err := op(); err != nil {
				return err
			}
		}
		return nil
	}
}

func timeNow() error {
	if time.Now().IsZero() {
		return errors.New("rawnode: no time")
	}
	return nil
}

func locked() func() error {
	var mu sync.RWMutex
	end := time.Now().Add(24 * time.Hour)
	return func() error {
		mu.RLock()
		defer mu.RUnlock()
		if !time.Now().Before(end) {
			return errors.New("rawnode: over")
		}
		return nil
	}
}

// through numbers the reads, as raft tells them apart by their context.
func through(t *trio) func() error {
	var id uint64
	return func() error {
		id++
		return t.read(binary.BigEndian.AppendUint64(nil, id))
	}
}

// Measure runs the arm for about d and returns how often, and how long it took.
func (a *Arm) Measure(d time.Duration) (n int, elapsed time.Duration, err error) {
	const first = 64
	for n = first; ; n *= 2 {
		begin := time.Now()
		if err := a.run(n); err != nil {
			return 0, 0, fmt.Errorf("arm %s: %w", a.Name, err)
		}
		if elapsed = time.Since(begin); elapsed >= d/2 {
			return n, elapsed, nil
		}
	}
}

// trio is three voters in one goroutine that hand messages to each other without
// a transport, a tick or a disk. Node 1 leads. It is the least that a read
// through raft can cost.
type trio struct {
	nodes    []*raft.RawNode
	storages []*raft.MemoryStorage
	queue    []*raftpb.Message
	answers  int // to reads
}

var errNotElected = errors.New("rawnode: node 1 does not lead")

func newTrio(option raft.ReadOnlyOption) (*trio, error) {
	t := &trio{}
	for id := range uint64(Voters) {
		s := raft.NewMemoryStorage()
		conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
		meta := &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}
		if err := s.ApplySnapshot(&raftpb.Snapshot{Metadata: meta}); err != nil {
			return nil, err
		}
		n, err := raft.NewRawNode(&raft.Config{
			ID: id + 1, ElectionTick: 10, HeartbeatTick: 1, Storage: s, Applied: 1,
			MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256, PreVote: true, CheckQuorum: true,
			ReadOnlyOption: option, Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
		})
		if err != nil {
			return nil, err
		}
		t.nodes, t.storages = append(t.nodes, n), append(t.storages, s)
	}
	if err := t.nodes[0].Campaign(); err != nil {
		return nil, err
	}
	t.pump()
	if t.nodes[0].BasicStatus().RaftState != raft.StateLeader {
		return nil, errNotElected
	}
	return t, nil
}

// read asks for a read index and returns once it is there.
func (t *trio) read(ctx []byte) error {
	before := t.answers
	t.nodes[0].ReadIndex(ctx)
	t.pump()
	if t.answers != before+1 {
		return fmt.Errorf("rawnode: %d answers to one read", t.answers-before)
	}
	return nil
}

// pump delivers and handles everything until nothing is left to do.
func (t *trio) pump() {
	for busy := true; busy; {
		busy = false
		for i, n := range t.nodes {
			for n.HasReady() {
				t.handle(i, n)
				busy = true
			}
		}
		for _, m := range t.queue {
			_ = t.nodes[m.GetTo()-1].Step(m) // raft drops what it cannot use
			busy = true
		}
		t.queue = t.queue[:0]
	}
}

func (t *trio) handle(i int, n *raft.RawNode) {
	rd := n.Ready()
	must(t.storages[i].Append(rd.Entries))
	if !raft.IsEmptyHardState(rd.HardState) {
		must(t.storages[i].SetHardState(rd.HardState))
	}
	t.queue = append(t.queue, rd.Messages...)
	t.answers += len(rd.ReadStates)
	n.Advance(rd)
}

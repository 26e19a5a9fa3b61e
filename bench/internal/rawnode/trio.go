package rawnode

import (
	"errors"
	"fmt"
	"io"
	"log"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

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

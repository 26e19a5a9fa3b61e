package leaderlease

import (
	"io"
	"log"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// realNode is a RawNode behind a Lease.
type realNode struct {
	*Lease
	t       *testing.T
	raw     *raft.RawNode
	storage *raft.MemoryStorage
}

// newRealNode makes the Lease, and then the RawNode after amend.
func newRealNode(t *testing.T, storage *raft.MemoryStorage, amend func(*raft.Config)) *realNode {
	t.Helper()
	cfg := puppetConfig(t)
	cfg.Raft.Storage, cfg.Raft.Applied = storage, 0
	cfg.Raft.Logger = &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	theirs := *cfg.Raft
	amend(&theirs)
	raw, err := raft.NewRawNode(&theirs)
	if err != nil {
		t.Fatal(err)
	}
	return &realNode{Lease: l, t: t, raw: raw, storage: storage}
}

// step passes m to raft if the Lease lets it in.
func (n *realNode) step(m *raftpb.Message) (in bool) {
	n.t.Helper()
	if in = n.Incoming(m, ProcessID{}); in {
		if err := n.raw.Step(m); err != nil {
			n.t.Fatal(err)
		}
	}
	return in
}

// turns handles each Ready, and lets node 2 answer what leaves as a follower does.
func (n *realNode) turns() {
	n.t.Helper()
	answer := map[raftpb.MessageType]raftpb.MessageType{
		raftpb.MsgPreVote: raftpb.MsgPreVoteResp, raftpb.MsgVote: raftpb.MsgVoteResp,
		raftpb.MsgApp: raftpb.MsgAppResp, raftpb.MsgHeartbeat: raftpb.MsgHeartbeatResp,
	}
	for n.raw.HasReady() {
		rd := n.raw.Ready()
		n.Ready(&rd)
		if err := n.storage.Append(rd.Entries); err != nil {
			n.t.Fatal(err)
		}
		for _, m := range rd.Messages {
			index := m.GetIndex() + uint64(len(m.GetEntries()))
			n.step(&raftpb.Message{
				Type: answer[m.GetType()].Enum(), From: new(uint64(2)), To: new(uint64(1)),
				Term: m.Term, Index: &index, Context: m.GetContext(),
			})
		}
		n.Applied(n.Info().Commit)
		n.raw.Advance(rd)
	}
}

// A log that is filled in between New and NewRawNode shows in the Ready with the first
// vote, which does not leave.
func TestStorageIsFilledBetweenNewAndTheNode(t *testing.T) {
	for _, late := range []bool{false, true} {
		storage := raft.NewMemoryStorage()
		fill := func() {
			for _, err := range []error{
				storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
					Index: new(uint64(3)), Term: new(uint64(1)), ConfState: voters(1, 2, 3),
				}}),
				storage.SetHardState(&raftpb.HardState{Term: new(uint64(4)), Vote: new(uint64(2)), Commit: new(uint64(3))}),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if !late {
			fill()
		}
		n := newRealNode(t, storage, func(*raft.Config) {
			if late {
				fill()
			}
		})
		vote := &raftpb.Message{
			Type: raftpb.MsgVote.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(5)),
			LogTerm: new(uint64(1)), Index: new(uint64(3)),
		}
		if in := n.step(vote); in != late {
			t.Fatalf("filled late %v: the request for a vote is let in: %v", late, in)
		}
		rd := n.raw.Ready()
		n.Ready(&rd)
		if err := n.Info().Err; (err != nil) != late {
			t.Errorf("filled late %v: Info().Err = %v", late, err)
		}
		if hold := n.Info().Promise.Hold; hold == 0 || len(rd.Messages) != 0 {
			t.Errorf("filled late %v: hold %v, and %v leaves, want a restart hold and no vote", late, hold, rd.Messages)
		}
	}
}

// A leader with the raft.Config that New was given, and with another one.
func TestReadOnlyLeaseBasedIsNoticed(t *testing.T) {
	for _, option := range []raft.ReadOnlyOption{raft.ReadOnlySafe, raft.ReadOnlyLeaseBased} {
		n := newRealNode(t, bootstrapped(t, 1, 2), func(c *raft.Config) { c.ReadOnlyOption = option })
		if err := n.raw.Campaign(); err != nil {
			t.Fatal(err)
		}
		n.turns()
		o := &outcome{}
		n.StartRead(t.Context(), ReadModeLease, func(r ReadResult, err error) { o.calls, o.read, o.err = o.calls+1, r, err })
		n.raw.ReadIndex(<-n.ReadRequests())
		n.turns()
		safe := option == raft.ReadOnlySafe
		if o.calls != 1 || (o.err == nil) != safe || (n.Info().Err == nil) != safe {
			t.Errorf("option %v: the read %+v, Info().Err %v", option, o, n.Info().Err)
		}
	}
}

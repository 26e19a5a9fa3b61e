package leaderlease

import (
	"errors"
	"io"
	"log"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// show lets the lease see rd as it is.
func (p *puppet) show(rd raft.Ready) []*raftpb.Message {
	p.Lease.Ready(&rd)
	return rd.Messages
}

// With two nodes that share a Lease, or Readys that it is not shown, the reads of the
// Lease mean nothing.
func TestReadysOfAnotherNodeAreRefused(t *testing.T) {
	tests := []struct {
		name, want string
		rd         func(p *puppet) raft.Ready
	}{
		{"a message of another node", "message of node 2", func(p *puppet) raft.Ready {
			return raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeatResp, 2, 1)}}
		}},
		{"an older term", "term 1 after term 2", func(p *puppet) raft.Ready {
			return raft.Ready{HardState: &raftpb.HardState{Term: new(uint64(1)), Commit: new(p.last)}}
		}},
		{"an older commit index", "commit index 1 after 2", func(p *puppet) raft.Ready {
			return raft.Ready{HardState: p.hard(1)}
		}},
		{"committed entries once more", "committed entry 2 after 2", func(p *puppet) raft.Ready {
			return raft.Ready{CommittedEntries: []*raftpb.Entry{p.entry(2)}}
		}},
		{"committed entries after a gap", "committed entry 4 after 2", func(p *puppet) raft.Ready {
			return raft.Ready{Entries: []*raftpb.Entry{p.entry(3), p.entry(4)}, CommittedEntries: []*raftpb.Entry{p.entry(4)}}
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := leading(t)
			p.sound()
			p.clock.Advance(usable)
			waits := p.startRead()
			p.show(tc.rd(p))
			p.misused(tc.want)
			if waits.calls != 1 || waits.err == nil {
				t.Errorf("the read that waits: called %d times with %v, want an error", waits.calls, waits.err)
			}
		})
	}
}

// A follower passes on what others have sent to its leader, with their ID.
func TestMessagesThatAFollowerPassesOnAreItsOwn(t *testing.T) {
	p := newPuppet(t)
	p.follow(2, 2)
	for _, typ := range []raftpb.MessageType{raftpb.MsgProp, raftpb.MsgReadIndex, raftpb.MsgTransferLeader} {
		p.show(raft.Ready{Messages: []*raftpb.Message{p.message(typ, 3, 2)}})
	}
	if err := p.Info().Err; err != nil {
		t.Errorf("Info().Err = %v, want none", err)
	}
}

// late is a voter with a Storage that is empty at New, and filled afterwards.
func late(t *testing.T, fill func(*raft.MemoryStorage) error, amend ...func(*Config)) *puppet {
	t.Helper()
	storage := raft.NewMemoryStorage()
	p := newPuppet(t, append([]func(*Config){func(c *Config) { c.Raft.Storage = storage }}, amend...)...)
	if err := fill(storage); err != nil {
		t.Fatal(err)
	}
	p.term = 5
	return p
}

func fillEntries(s *raft.MemoryStorage) error {
	return s.Append([]*raftpb.Entry{{Index: new(uint64(1)), Term: new(uint64(4))}})
}

// Whatever Storage has more than New has read, no lease is held from the first Ready on, and the
// votes of that very Ready do not leave: the node may have promised something. The commit index
// need not be on disk.
func TestAStorageThatIsFilledAfterNewIsNoticed(t *testing.T) {
	tests := map[string]func(*raft.MemoryStorage) error{
		"entries alone": fillEntries,
		"a term alone": func(s *raft.MemoryStorage) error {
			return s.SetHardState(&raftpb.HardState{Term: new(uint64(4)), Vote: new(uint64(2))})
		},
		"a snapshot": func(s *raft.MemoryStorage) error {
			return s.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
				Index: new(uint64(9)), Term: new(uint64(4)), ConfState: voters(1, 2, 3),
			}})
		},
	}
	for name, fill := range tests {
		t.Run(name, func(t *testing.T) {
			p := late(t, fill)
			vote := p.message(raftpb.MsgVoteResp, 1, 3)
			p.show(raft.Ready{HardState: p.hard(0), Messages: []*raftpb.Message{vote}})
			wantVoid(t, "the vote", vote)
			if hold := p.Info().Promise.Hold; hold != 900*ms {
				t.Errorf("Info().Promise.Hold = %v, want %v from now on", hold, 900*ms)
			}
			p.misused("New has read Storage before the log")
			if p.Incoming(p.message(raftpb.MsgVote, 3, 1)) {
				t.Error("Incoming(vote) = true in the restart hold, want false")
			}
		})
	}
}

func TestAStorageThatCannotBeReadAtTheFirstReadyIsAMisuse(t *testing.T) {
	s := &badStorage{MemoryStorage: raft.NewMemoryStorage()}
	p := newPuppet(t, func(c *Config) { c.Raft.Storage = s })
	s.last = errors.New("bad disk")
	p.show(raft.Ready{})
	p.misused("cannot be read again at the first Ready: bad disk; restart the node")
	if p.CanCampaign() == nil {
		t.Error("CanCampaign() = nil, want a refusal by the restart hold")
	}
}

// Storage is compared before the first Ready is written, and not afterwards.
func TestWhatAReadyWritesIsNoLateStorage(t *testing.T) {
	p := late(t, func(*raft.MemoryStorage) error { return nil })
	p.show(raft.Ready{HardState: p.hard(0)})
	storage, _ := p.cfg.Raft.Storage.(*raft.MemoryStorage)
	if err := fillEntries(storage); err != nil {
		t.Fatal(err)
	}
	p.show(raft.Ready{})
	if err := p.Info().Err; err != nil {
		t.Errorf("Info().Err = %v, want none", err)
	}
}

// The restart hold of a late node is for what its predecessor has saved, which does not fall
// before.
func TestALateStorageHoldsForTheSavedPromise(t *testing.T) {
	f := &promiseFile{kept: 5 * usable}
	p := late(t, fillEntries, func(c *Config) { c.Promises = f })
	p.Tick()
	p.saves.Wait()
	if f.kept != 5*usable {
		t.Errorf("%v are saved before the first Ready, want %v", f.kept, 5*usable)
	}
	p.show(raft.Ready{HardState: p.hard(0)})
	if hold := p.Info().Promise.Hold; hold != 5*usable {
		t.Errorf("Info().Promise.Hold = %v, want %v", hold, 5*usable)
	}
}

// The restart hold of a late node begins at the newest good reading if the clock fails at the first Ready.
func TestALateStorageHoldsIfTheClockFails(t *testing.T) {
	p := late(t, fillEntries)
	now := p.clock.reading.Swap(0)
	p.show(raft.Ready{HardState: p.hard(0)})
	p.clock.reading.Store(now)
	if hold := p.Info().Promise.Hold; hold != 900*ms {
		t.Errorf("Info().Promise.Hold = %v, want %v", hold, 900*ms)
	}
	if p.Incoming(p.message(raftpb.MsgVote, 3, 1)) {
		t.Error("Incoming(vote) = true in the restart hold, want false")
	}
}

// A voter that is alone and elects itself shows its candidacy in its first Ready, which is held back.
func TestALateSoleVoterIsHeldBack(t *testing.T) {
	p := late(t, fillEntries)
	rd := raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}, HardState: p.hard(0)}
	if !p.WouldBlock(rd) {
		t.Error("WouldBlock() = false, want true for the restart hold")
	}
	if p.clock.Advance(900 * ms); p.WouldBlock(rd) {
		t.Error("WouldBlock() = true after the hold, want false")
	}
}

// A node that has stepped messages before its first Ready, or is bootstrapped by raft, has
// no more than New has read.
func TestAFirstReadyAfterOtherStepsIsNoMisuse(t *testing.T) {
	p := newPuppet(t)
	p.term = 40
	var es []*raftpb.Entry
	for i := uint64(2); i < 9; i++ {
		es = append(es, p.entry(i))
	}
	grants := p.message(raftpb.MsgPreVoteResp, 1, 3)
	grants.Term = new(p.term + 1)
	p.show(raft.Ready{
		SoftState: &raft.SoftState{Lead: 2}, HardState: p.hard(8), Entries: es, CommittedEntries: es,
		Messages: []*raftpb.Message{grants},
	})
	// An entry was acknowledged to one leader, and replaced by the next one, in between.
	replaced := p.message(raftpb.MsgAppResp, 1, 2)
	replaced.Index = new(uint64(11))
	p.show(raft.Ready{Entries: []*raftpb.Entry{p.entry(9), p.entry(10)}, Messages: []*raftpb.Message{replaced}})
	p.restore(100, voters(1, 2, 3))
	p.commitTo(101)
	if err := p.Info().Err; err != nil {
		t.Errorf("Info().Err = %v, want none", err)
	}
}

// Raft that runs with other AsyncStorageWrites than New was told.
func TestOtherStorageWritesAreRefused(t *testing.T) {
	write := func(p *puppet) []*raftpb.Message {
		return []*raftpb.Message{p.message(raftpb.MsgStorageAppend, 1, raft.LocalAppendThread)}
	}
	p := leading(t)
	p.show(raft.Ready{HardState: p.hard(p.last), Messages: write(p)})
	p.misused("raft runs with AsyncStorageWrites true")
	p = leading(t, inAsyncMode)
	p.show(raft.Ready{HardState: p.hard(p.last), Messages: write(p)})
	p.show(raft.Ready{})
	p.sound()
	p.show(raft.Ready{Entries: []*raftpb.Entry{p.entry(p.last + 1)}})
	p.misused("raft runs with AsyncStorageWrites false")
}

// A leader that is told to answer ReadIndex by its own clock serves no such answer, its
// own or a follower's.
func TestAnswersWithoutARoundAreRefused(t *testing.T) {
	p := leading(t)
	p.leaseBased = true
	p.clock.Advance(usable)
	waits := p.startRead()
	p.answer(p.asked(), p.last)
	if waits.calls != 1 || waits.err == nil {
		t.Errorf("the read: called %d times with %v, want an error", waits.calls, waits.err)
	}
	p.misused("without a quorum round")
	if _, err := p.Read(t.Context()); err == nil {
		t.Error("Read() = nil after the misuse, want an error")
	}

	p = leading(t)
	p.leaseBased = true
	resp := p.message(raftpb.MsgReadIndexResp, 1, 2)
	resp.Index = new(p.last)
	if msgs := p.Ready(raft.Ready{Messages: []*raftpb.Message{resp}}); len(msgs) != 0 {
		t.Errorf("Ready() let %v out, want no answer", msgs)
	}
	p.misused("without a quorum round")

	// A round that it has made in an earlier term proves nothing.
	p = leading(t)
	p.mu.checks.answersExpected = true
	p.lead(3)
	p.show(raft.Ready{ReadStates: []raft.ReadState{{Index: p.last, RequestCtx: []byte("a reader")}}})
	p.misused("without a quorum round")
}

// A leader that is, or was, the only voter needs no round; nor does one that has made one.
func TestAnswersThatNeedNoRoundAreNoMisuse(t *testing.T) {
	read := func(p *puppet) {
		t.Helper()
		p.show(raft.Ready{ReadStates: []raft.ReadState{{Index: p.last, RequestCtx: []byte("a reader")}}})
		if err := p.mu.misuse; err != nil {
			t.Errorf("misuse: %v, want none", err)
		}
	}
	p := newPuppet(t, func(c *Config) { c.Raft.Storage = bootstrapped(t, 1) })
	p.lead(2)
	read(p)
	p.commitChanges(1)
	p.ApplyConfState(voters(1, 2))
	read(p)

	p = leading(t)
	m := p.message(raftpb.MsgHeartbeat, 1, 2)
	m.Context = make([]byte, 8)
	p.show(raft.Ready{Messages: []*raftpb.Message{m}})
	read(p)

	p = leading(t)
	p.commitChanges(1)
	read(p) // raft may be alone already

	p = newPuppet(t) // the answer of the leader before comes with the election
	p.term, p.last = 2, 2
	p.show(raft.Ready{
		SoftState: &raft.SoftState{Lead: 1, RaftState: raft.StateLeader}, HardState: p.hard(1),
		Entries:    []*raftpb.Entry{p.entry(2)},
		ReadStates: []raft.ReadState{{Index: 1, RequestCtx: []byte("a reader")}},
	})
	if err := p.mu.misuse; err != nil {
		t.Errorf("misuse: %v, want none", err)
	}
}

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

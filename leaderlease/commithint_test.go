package leaderlease

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
)

// Answers to candidates say what is committed, wherever they leave from, and no other
// message does.
func TestVoteAnswersSayWhatIsCommitted(t *testing.T) {
	answer := func(typ raftpb.MessageType, to uint64, reject bool) *raftpb.Message {
		return &raftpb.Message{Type: typ.Enum(), From: new(uint64(1)), To: new(to), Term: new(uint64(4)), Reject: new(reject)}
	}
	tests := []struct {
		name string
		m    *raftpb.Message
		want bool
	}{
		{"a vote", answer(raftpb.MsgVoteResp, 2, false), true},
		{"a vote that is rejected", answer(raftpb.MsgVoteResp, 2, true), true},
		{"a pre-vote", answer(raftpb.MsgPreVoteResp, 2, false), true},
		{"a pre-vote that is rejected", answer(raftpb.MsgPreVoteResp, 2, true), true},
		{"the vote for itself", answer(raftpb.MsgVoteResp, 1, false), false},
		{"another answer", answer(raftpb.MsgAppResp, 2, true), false},
	}
	for _, tt := range tests {
		for _, later := range []bool{false, true} { // as one of the Responses of a MsgStorageAppend
			p := newPuppet(t, func(c *Config) { c.Raft.AsyncStorageWrites = later })
			p.Ready(raft.Ready{CommittedEntries: []*raftpb.Entry{{Index: new(uint64(2)), Term: new(uint64(3))}}})
			m := *answer(tt.m.GetType(), tt.m.GetTo(), tt.m.GetReject())
			out := []*raftpb.Message{&m}
			if later {
				out = []*raftpb.Message{{Type: raftpb.MsgStorageAppend.Enum(), To: new(raft.LocalAppendThread), Responses: out}}
			}
			p.Ready(raft.Ready{Messages: out})
			if got := m.GetCommit() == 2 && m.GetRejectHint() == 3; got != tt.want {
				t.Errorf("%s (in a MsgStorageAppend: %v) says commit %d of term %d, want 2 of 3: %v", tt.name, later, m.GetCommit(), m.GetRejectHint(), tt.want)
			}
		}
	}
}

// The hint names what is known to be committed: at the start, by entries, by a snapshot; it
// never goes back.
func TestTheHintFollowsWhatIsCommitted(t *testing.T) {
	p := newPuppet(t)
	entry := func(index, term uint64) raft.Ready {
		return raft.Ready{CommittedEntries: []*raftpb.Entry{{Index: new(index), Term: new(term)}}}
	}
	for _, step := range []struct {
		rd   raft.Ready
		want commitHint
	}{
		{raft.Ready{}, commitHint{1, 1}}, // the snapshot that the log begins with
		{entry(4, 2), commitHint{4, 2}},
		{raft.Ready{HardState: &raftpb.HardState{Term: new(uint64(3)), Commit: new(uint64(6))}}, commitHint{4, 2}},
		{entry(6, 3), commitHint{6, 3}},
		{raft.Ready{Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(9)), Term: new(uint64(5)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
		}}}, commitHint{9, 5}},
		{entry(7, 3), commitHint{9, 5}},
	} {
		p.Ready(step.rd)
		if got := p.mu.committed; got != step.want {
			t.Errorf("hint = %+v, want %+v", got, step.want)
		}
	}
}

// hinted returns the answer of member 2 to member 1 that says what is committed.
func hinted(index, term uint64) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgPreVoteResp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(9)), Reject: new(true),
		Commit: new(index), RejectHint: new(term),
	}
}

// A hint counts only where the log has the same entry, only if it tells of a configuration
// change, and where there is no leader to tell. It makes no member the leader.
func TestRaiseCommit(t *testing.T) {
	heartbeat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(9)), Commit: new(uint64(2))}
	tests := []struct {
		name  string
		log   string
		first *raftpb.Message // is stepped before
		m     *raftpb.Message
		want  uint64
	}{
		{"the change", "n1 n1 c1 n1", nil, hinted(3, 1), 3},
		{"an entry behind the change", "n1 n1 c1 n1", nil, hinted(4, 1), 4},
		{"what is known", "n1 n1 c1 n1", nil, hinted(2, 1), 2},
		{"another entry at its index", "n1 n1 c1 n1", nil, hinted(3, 2), 2},
		{"an entry that is not there", "n1 n1 c1 n1", nil, hinted(5, 1), 2},
		{"no change", "n1 n1 n1 n1", nil, hinted(4, 1), 2},
		{"no hint", "n1 n1 c1 n1", nil, hinted(0, 0), 2},
		{"under a leader", "n1 n1 c1 n1", heartbeat, hinted(3, 1), 2},
		{"another message", "n1 n1 c1 n1", nil, &raftpb.Message{
			Type: raftpb.MsgAppResp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(9)), Commit: new(uint64(3)), RejectHint: new(uint64(1)),
		}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rc, cfg := pairConfig(t, logOf(t, tt.log, 1, 2))
			node, l, err := NewRawNode(rc, cfg)
			if err != nil {
				t.Fatal(err)
			}
			lead := raft.None
			if tt.first != nil {
				lead = tt.first.GetFrom()
				_ = node.Step(tt.first)
			}
			l.RaiseCommit(node, tt.m)
			if s := node.BasicStatus(); s.GetCommit() != tt.want || s.Lead != lead {
				t.Errorf("commit index %d and leader %d, want %d and %d", s.GetCommit(), s.Lead, tt.want, lead)
			}
		})
	}
}

func TestAMemberWithoutTheLibraryLearnsNothing(t *testing.T) {
	rc, cfg := pairConfig(t, logOf(t, "n1 n1 c1 n1", 1, 2))
	node, _, err := NewRawNode(rc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	(*Lease)(nil).RaiseCommit(node, hinted(3, 1))
	if got := node.BasicStatus().GetCommit(); got != 2 {
		t.Errorf("commit index = %d, want 2", got)
	}
}

// Step of the Node that RestartNode returns does what RaiseCommit does.
func TestAWrappedNodeLearnsWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc, cfg := pairConfig(t, logOf(t, "n1 n1 c1 n1", 1, 2))
		cfg.Clock = clock.Runtime()
		node, _, err := RestartNode(rc, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Step(t.Context(), hinted(3, 1)); err != nil {
			t.Fatal(err)
		}
		if s := node.Status(); s.GetCommit() != 3 || s.Lead != raft.None {
			t.Errorf("commit index %d and leader %d, want 3 and none", s.GetCommit(), s.Lead)
		}
		node.Stop()
	})
}

// A handler of Config.Logger that blocks does not stop RaiseCommit.
func TestABlockedLogHandlerDoesNotStopLearnCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc, cfg := pairConfig(t, logOf(t, "n1 n1 c1 n1", 1, 2))
		s := blockedSink()
		cfg.Logger = slog.New(s)
		node, l, err := NewRawNode(rc, cfg)
		if err != nil {
			t.Fatal(err)
		}
		back := make(chan struct{})
		go func() { l.RaiseCommit(node, hinted(3, 1)); close(back) }()
		synctest.Wait()
		select {
		case <-back:
		default:
			t.Error("RaiseCommit waits for the handler")
		}
		close(s.opened)
		<-back
		l.Close()
	})
}

// lateAppend is a MsgApp of member 2, which led term, that was late on the network. It
// replaces what follows index 2 by n entries of that term.
func lateAppend(term uint64, n int) *raftpb.Message {
	m := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: &term,
		Index: new(uint64(2)), LogTerm: new(uint64(1)), Commit: new(uint64(2)),
	}
	for i := range n {
		m.Entries = append(m.Entries, &raftpb.Entry{Index: new(uint64(3 + i)), Term: &term, Data: []byte("lost")})
	}
	return m
}

// hintFrom3 is the answer of member 3 to a candidate, with its term and its hint.
func hintFrom3(term, index, indexTerm uint64) *raftpb.Message {
	m := hinted(index, indexTerm)
	m.From, m.Term = new(uint64(3)), &term
	return m
}

// slowNode is a node with a storage thread that answers when local allows it.
type slowNode struct {
	*realNode
}

// local steps the answers of the local threads in rd, those of the storage thread only if
// the disk is done.
func (d *slowNode) local(rd raft.Ready, done bool) {
	for _, m := range rd.Messages {
		if m.GetType() == raftpb.MsgStorageAppend && !done {
			continue
		}
		for _, r := range m.GetResponses() {
			if r.GetTo() == 1 {
				_ = d.raw.Step(r)
			}
		}
	}
}

func (d *slowNode) next() raft.Ready {
	rd := d.raw.Ready()
	d.Ready(&rd)
	return rd
}

// The hinted entry may be on the disk, and already replaced in raft, with the write
// under way. Nothing is lost or torn here: member 1 has the change of term 2 at index 3 on
// disk, a late append of the leader of term 3 replaces it, and the leader of term 4 has
// committed the change.
func TestAHintIsComparedWithRaftsLogAndNotTheDisk(t *testing.T) {
	s := logOf(t, "n1 n1 c2", 1, 2)
	_ = s.SetHardState(&raftpb.HardState{Term: new(uint64(3)), Commit: new(uint64(2))})
	rc, cfg := pairConfig(t, s)
	rc.AsyncStorageWrites = true
	clk, _ := cfg.Clock.(*handClock)
	raw, l, err := NewRawNode(rc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &slowNode{&realNode{Lease: l, t: t, raw: raw, storage: s}}
	clk.Advance(2 * time.Second) // the restart hold is over
	d.local(d.next(), true)
	d.step(lateAppend(3, 1))
	write := d.next()
	if err := raw.Campaign(); err != nil {
		t.Fatal(err)
	}
	d.local(write, false)
	m := hintFrom3(4, 3, 2)
	if !d.Incoming(m, ProcessID{}) {
		t.Fatal("Incoming(answer) = false, want true")
	}
	d.RaiseCommit(raw, m)
	if c := raw.BasicStatus().GetCommit(); c != 2 {
		t.Errorf("commit index %d over the entry 3 of term 3, want 2: the entry 3 of term 2 is committed", c)
	}
	// The disk is done.
	_ = s.Append(write.Entries)
	d.local(write, true)
	for range 3 {
		if !raw.HasReady() {
			break
		}
		rd := d.next()
		for _, e := range rd.CommittedEntries {
			t.Errorf("handed out as committed: %v", e)
		}
		d.local(rd, true)
	}
}

// After a Ready that was torn between its entries and its HardState, an append of an older
// term may make raft's log shorter than the one on disk. A heartbeat with the hint made raft
// panic there.
func TestAHintBeyondRaftsLogIsNotBelieved(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, n := range []int{1, 2} {
			s := logOf(t, "n1 n1 n5 c5", 1, 2)
			_ = s.SetHardState(&raftpb.HardState{Term: new(uint64(3)), Commit: new(uint64(2))})
			rc, cfg := pairConfig(t, s)
			rc.AsyncStorageWrites = async
			clk, _ := cfg.Clock.(*handClock)
			raw, l, err := NewRawNode(rc, cfg)
			if err != nil {
				t.Fatal(err)
			}
			d := &slowNode{&realNode{Lease: l, t: t, raw: raw, storage: s}}
			clk.Advance(2 * time.Second)
			rd := d.next()
			d.local(rd, true)
			if !async {
				raw.Advance(rd)
			}
			d.step(lateAppend(4, n))
			if async {
				d.next() // the storage thread is slow
			}
			_ = raw.Campaign()
			if m := hintFrom3(5, 4, 5); l.Incoming(m, ProcessID{}) {
				l.RaiseCommit(raw, m)
			}
			if c := raw.BasicStatus().GetCommit(); c != 2 {
				t.Errorf("async %v, %d entries of term 4: commit index %d, want 2", async, n, c)
			}
		}
	}
}

// A raft.Node takes messages while a Ready is on its way to the disk.
func TestAHintIsComparedWithTheLogOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := logOf(t, "n1 n1 n5 c5", 1, 2)
		_ = s.SetHardState(&raftpb.HardState{Term: new(uint64(3)), Commit: new(uint64(2))})
		rc, cfg := pairConfig(t, s)
		cfg.Clock = clock.Runtime()
		node, _, err := RestartNode(rc, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer node.Stop()
		time.Sleep(5 * time.Second) // the restart hold is over
		<-node.Ready()
		node.Advance()
		_ = node.Step(t.Context(), lateAppend(4, 2))
		rd := <-node.Ready() // on its way to the disk
		for node.Status().RaftState == raft.StateFollower {
			node.Tick()
			synctest.Wait()
		}
		_ = node.Step(t.Context(), hintFrom3(5, 4, 5))
		if c := node.Status().GetCommit(); c != 2 {
			t.Errorf("commit index %d over %v, want 2", c, rd.Entries)
		}
	})
}

// The sender is forgotten as a leader also if the caller's context has ended meanwhile.
func TestALearntLeaderIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc, cfg := pairConfig(t, logOf(t, "n1 n1 c1 n1", 1, 2))
		cfg.Clock = clock.Runtime()
		node, _, err := RestartNode(rc, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer node.Stop()
		time.Sleep(5 * time.Second)
		done := make(chan struct{})
		defer close(done)
		go func() {
			for {
				select {
				case <-node.Ready():
					node.Advance()
				case <-done:
					return
				}
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // with an ended context, Step may take the message or not
			_ = node.Step(ctx, hinted(3, 1))
			synctest.Wait()
			if lead := node.Status().Lead; lead != raft.None {
				t.Fatalf("raft follows %d, want no leader", lead)
			}
		}
	})
}

// What raft hands out as committed is, whether or not the Ready has a HardState, up to
// the last entry; and the commit index never goes back.
func TestCommittedEntriesMoveTheCommitIndex(t *testing.T) {
	p := newPuppet(t)
	for _, c := range []struct{ first, last, want uint64 }{{2, 2, 2}, {3, 6, 6}, {7, 8, 8}} {
		var es []*raftpb.Entry
		for i := c.first; i <= c.last; i++ {
			es = append(es, p.entry(i))
		}
		p.Ready(raft.Ready{CommittedEntries: es})
		if got := p.commit.Load(); got != c.want {
			t.Errorf("commit index after entries %d to %d = %d, want %d", c.first, c.last, got, c.want)
		}
	}
}

// A change that was applied without ApplyConfState is said once, however much is
// applied after it, and again when another is missed once that is mended.
func TestAMissedChangeIsSaidOnce(t *testing.T) {
	var c confWatch
	c.open = []uint64{5, 9}
	for _, step := range []struct {
		applied uint64
		said    bool
	}{{4, false}, {5, true}, {6, false}, {8, false}} {
		before := c.wrong()
		c.noteApplied(step.applied)
		if err := c.wrong(); (before == nil && err != nil) != step.said {
			t.Errorf("applied(%d): wrong() = %v, was %v, want it said: %v", step.applied, err, before, step.said)
		}
	}
	if use, rule := c.close(5); !use || rule != "" {
		t.Fatalf("toldAt(5) = %v, %q, want it used", use, rule)
	}
	if c.noteApplied(8); c.wrong() != nil {
		t.Errorf("wrong() once 5 is told and 8 applied = %v, want nil", c.wrong())
	}
	if c.noteApplied(9); c.wrong() == nil {
		t.Error("wrong() when 9 is applied without being told = nil, want an error")
	}
}

// A clock that cannot be disrupted has had no disruption.
func TestAClockWithoutDisruptionsHasHadNone(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.Clock = &shakyClock{Clock: c.Clock} })
	if n := p.disruptions(); n != 0 {
		t.Errorf("disruptions() = %d, want 0", n)
	}
}

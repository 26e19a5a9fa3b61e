package leaderlease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
)

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

// slowNode is a node whose storage thread answers when local is told to.
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

// An entry that the hint names may be on the disk, and replaced in raft, whose write is
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
	d.LearnCommit(raw, m)
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
				l.LearnCommit(raw, m)
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

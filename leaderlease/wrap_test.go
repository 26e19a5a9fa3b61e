package leaderlease

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// bothModes runs a test in a bubble with and without AsyncStorageWrites.
func bothModes(t *testing.T, size uint64, test func(t *testing.T, g *wrappedGroup)) {
	t.Helper()
	for name, async := range map[string]bool{"sync": false, "async": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newWrappedGroup(t, async, size)) })
		})
	}
}

func TestWrappedNodesServeUnderLease(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		for i := range 20 {
			want := fmt.Sprintf("write %d", i)
			if err := g.nodes[1].Propose(t.Context(), []byte(want)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wrapTick)
			for id, n := range g.nodes {
				r, err := n.Read(t.Context())
				path := PathForwarded
				if id == 1 {
					path = PathLease
				}
				if got := n.last(); err != nil || got != want || r.Path != path {
					t.Fatalf("node %d: Read() = %+v, %v and data %q, want %q, %v", id, r, err, got, want, path)
				}
			}
		}
		s := g.nodes[1].Stats()
		if s.Reads[PathLease] != 20 || s.Answered != 40 || s.Rounds != 0 {
			t.Errorf("Stats() of the leader = %d lease reads, %d answered, %d rounds, want 20, 40, 0", s.Reads[PathLease], s.Answered, s.Rounds)
		}
	})
}

func TestWrappedTransfer(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		before, err := g.nodes[1].Token()
		if err != nil {
			t.Fatal(err)
		}
		g.nodes[1].TransferLeadership(t.Context(), 1, 2)
		g.leads(2)
		if g.nodes[1].Valid() {
			t.Error("the old leader still has a lease")
		}
		after, err := g.nodes[2].Token()
		if err != nil || !before.Less(after) {
			t.Errorf("Token() of the new leader = %v, %v, want more than %v", after, err, before)
		}
		if s := g.nodes[1].Stats(); s.Transfers != 1 {
			t.Errorf("Stats().Transfers = %d, want 1", s.Transfers)
		}
	})
}

func TestWrappedFailOver(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		g.cut(1, true)
		for range 100 {
			time.Sleep(wrapTick)
			if (g.nodes[2].Valid() || g.nodes[3].Valid()) && g.nodes[1].Valid() {
				t.Fatal("two nodes have a valid lease")
			}
		}
		if !g.nodes[2].Valid() && !g.nodes[3].Valid() {
			t.Error("nobody took over in 10 s")
		}
		if _, err := g.nodes[1].Read(t.Context()); !errors.Is(err, ErrNoLease) {
			t.Errorf("Read() at the old leader = %v, want ErrNoLease once it has stepped down", err)
		}
	})
}

// A node that is bound must not campaign, and says why.
func TestWrappedCampaignIsRefusedWhileBound(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		time.Sleep(wrapTick)
		err := g.nodes[2].Campaign(t.Context())
		if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.NotLeader || nl.Leader != 1 {
			t.Errorf("Campaign() under a promise = %v, want %v, leader 1", err, core.NotLeader)
		}
		term := g.nodes[1].Lease.Info().Term
		time.Sleep(time.Second)
		if s := g.nodes[1].Lease.Info(); s.Term != term || !s.Valid() {
			t.Errorf("Info() = %+v, want node 1 to lead on in term %d", s, term)
		}
		g.cut(1, true)
		time.Sleep(900 * ms)
		if err := g.nodes[2].Campaign(t.Context()); err != nil {
			t.Errorf("Campaign() after the promise = %v, want nil", err)
		}
	})
}

// A restarted node holds for as long as its longest promise may last.
func TestWrappedRestartHold(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		old := g.nodes[2]
		old.halt()
		restarted := g.start(2, old.async, old.disk)
		g.mu.Lock()
		g.nodes[2] = restarted
		g.mu.Unlock()
		restarted.run()
		err := restarted.Campaign(t.Context())
		if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.RestartHold {
			t.Errorf("Campaign() after a restart = %v, want %v", err, core.RestartHold)
		}
		if hold := restarted.Lease.Info().Promise.Hold; hold != 900*ms {
			t.Errorf("Info().Promise.Hold = %v, want 900ms", hold)
		}
		time.Sleep(time.Second)
		if !g.nodes[1].Valid() || restarted.Lease.Info().Promise.Hold != 0 {
			t.Errorf("after the hold: lease valid %v, hold %v, want true, 0", g.nodes[1].Valid(), restarted.Lease.Info().Promise.Hold)
		}
	})
}

// raft.Node buffers 128 ticks, so a follower that was not scheduled finds
// itself beyond any election timeout while its leader is alive. Without the
// promise it would campaign; with it, nothing leaves.
func TestWrappedTickBurst(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		time.Sleep(wrapTick) // until node 3 has promised, too
		term := g.nodes[1].Lease.Info().Term
		f := g.nodes[3]
		f.hold <- struct{}{}
		for range 128 {
			f.Node.Tick()
		}
		synctest.Wait()
		<-f.hold
		for range 20 {
			time.Sleep(wrapTick)
			if !g.nodes[1].Valid() {
				t.Fatalf("lease = %v after the burst, want it untouched", g.nodes[1].Lease.Info().Status)
			}
		}
		if got := g.nodes[1].Lease.Info().Term; got != term {
			t.Errorf("term = %d after the burst, want %d", got, term)
		}
		if n := f.Stats().Withheld.PreVoteOut; n == 0 {
			t.Error("Stats().Withheld[pre_vote_out] = 0, want the campaign of the burst kept back")
		}
		if n := g.sent(3, raftpb.MsgPreVote); n != 0 {
			t.Errorf("%d pre-votes left the node while it was bound, want none", n)
		}
	})
}

// A node that is alone a quorum does not elect itself against its promise,
// however many ticks it finds waiting.
func TestWrappedSoleVoterAwaitsItsHold(t *testing.T) {
	bothModes(t, 1, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		old := g.nodes[1]
		old.halt()
		restarted := g.start(1, old.async, old.disk)
		g.mu.Lock()
		g.nodes[1] = restarted
		g.mu.Unlock()
		restarted.run()
		for range 128 {
			restarted.Node.Tick()
		}
		for range 8 {
			time.Sleep(wrapTick)
			if restarted.Lease.Info().Role == raft.StateLeader {
				t.Fatal("the node leads within its restart hold")
			}
		}
		if n := restarted.Stats().Withheld.Tick; n < 128 {
			t.Errorf("Stats().Withheld[tick] = %d, want the burst of 128 kept back", n)
		}
		g.leads(1)
	})
}

// What the lease keeps away does not reach raft: a vote that a transfer forces
// passes raft's own guard, and would bring the follower's term up.
func TestWrappedStepKeepsVotesAway(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		time.Sleep(wrapTick) // until node 2 has promised, too
		f := g.nodes[2]
		term := f.Lease.Info().Term
		vote := &raftpb.Message{
			Type: raftpb.MsgVote.Enum(), From: new(uint64(3)), To: new(uint64(2)), Term: new(term + 7),
			LogTerm: new(term + 6), Index: new(uint64(100)), Context: []byte(core.CampaignTransfer),
		}
		if err := f.Step(t.Context(), vote); err != nil {
			t.Errorf("Step(vote) = %v, want it dropped without an error", err)
		}
		synctest.Wait()
		if got := f.Node.Status().GetTerm(); got != term {
			t.Errorf("raft's term = %d after a vote under a promise, want %d", got, term)
		}
		if err := f.Step(t.Context(), nil); err == nil {
			t.Error("Step(nil) = nil, want raft's own error")
		}
	})
}

// Configuration changes reach the lease through the wrapper.
func TestWrappedConfChange(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		remove := &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
			{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(3))},
		}}
		if err := g.nodes[1].ProposeConfChange(t.Context(), remove); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * wrapTick)
		s := g.nodes[1].Lease.Info()
		if len(s.Peers) != 1 || s.Peers[0].ID != 2 || !s.Valid() || s.Err != nil {
			t.Errorf("Info() = %+v, want a lease from node 2 alone", s)
		}
	})
}

// Stop ends everything that Wrap started, whatever it was doing, and fails the
// reads that wait. goleak and the bubble see to the goroutines.
func TestWrappedStop(t *testing.T) {
	bothModes(t, 3, func(t *testing.T, g *wrappedGroup) {
		g.elect(1)
		g.cut(1, true)
		time.Sleep(900 * ms)
		reads := make(chan error, 10)
		for range cap(reads) {
			go func() {
				_, err := g.nodes[1].Read(context.Background())
				reads <- err
			}()
		}
		synctest.Wait()
		g.nodes[1].halt()
		g.nodes[1].Stop()
		for range cap(reads) {
			if nl, ok := errors.AsType[*NoLeaseError](<-reads); !ok || nl.Status != core.Closed {
				t.Errorf("Read() across Stop = %v, want %v", nl, core.Closed)
			}
		}
		if err := g.nodes[1].Step(t.Context(), &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1))}); !errors.Is(err, raft.ErrStopped) {
			t.Errorf("Step() after Stop = %v, want raft.ErrStopped", err)
		}
	})
}

// No goroutine receives Readys: Stop must not wait for one.
func TestWrappedStopBeforeAnyReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &wrappedGroup{t: t, nodes: map[uint64]*wrapped{}}
		n := g.start(1, false, bootstrapped(t, 1))
		if err := n.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.Stop()
	})
}

func TestWrapPassesErrorsOn(t *testing.T) {
	cfg := puppetConfig(t)
	cfg.TickInterval = 0
	n, l, err := Wrap(nil, cfg)
	if n != nil || l != nil || err == nil {
		t.Errorf("Wrap() = %v, %v, %v, want an error alone", n, l, err)
	}
}

// countsReads counts the calls of InitialState, which takes no lock in raft's MemoryStorage.
type countsReads struct {
	*raft.MemoryStorage
	reads int
}

func (s *countsReads) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	s.reads++
	return s.MemoryStorage.InitialState()
}

// Once Wrap has returned, the caller may use Storage from its goroutines: the Lease must not read
// the state that MemoryStorage leaves unlocked.
func TestAWrappedNodeReadsStorageBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc, cfg, clock := soleVoter(t)
		memory, ok := rc.Storage.(*raft.MemoryStorage)
		if !ok {
			t.Fatalf("Storage is a %T", rc.Storage)
		}
		storage := &countsReads{MemoryStorage: memory}
		rc.Storage, cfg.Raft.Storage = storage, storage
		inner := raft.RestartNode(rc)
		n, _, err := Wrap(inner, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Stop()
		before := storage.reads
		clock.Advance(time.Hour) // the restart hold has ended
		if err := inner.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-n.Ready()
		if storage.reads != before {
			t.Errorf("Wrap's goroutine has called InitialState %d times, want none", storage.reads-before)
		}
	})
}

package leaderlease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// A loop that hangs has not said yet that raft has stepped down: what is handed back is of the
// term that the lease knows, whatever its node has promised to another leader since.
func TestResignNamesTheTermThatItLeads(t *testing.T) {
	p := leading(t)
	p.clock.Advance(100 * ms)
	p.term = 3
	probe := p.message(raftpb.MsgHeartbeat, 2, 1)
	attachProbe(probe, core.Probe{Sent: 1, Duration: 900 * ms})
	if p.Incoming(probe); p.Info().Promise.Term != 3 {
		t.Fatalf("Info().Promise = %+v, want one of term 3", p.Info().Promise)
	}
	m, ok := p.Resign(2)
	if !ok {
		t.Fatal("Resign() = false, want true")
	}
	r, err := releaseOf(m)
	if want := (core.Release{Term: 2, At: p.clock.Now()}); m.GetTerm() != 2 || r != want || err != nil {
		t.Errorf("Resign() = a message of term %d with %+v, %v, want term 2 and %+v", m.GetTerm(), r, err, want)
	}
	if !releases(m, r) {
		t.Error("the receiver does not take it for a release")
	}
}

// It is about a leader without a clock, too: the newest good reading bounds what it has sent.
func TestResignWithAClockThatFails(t *testing.T) {
	p := leading(t)
	last := p.clock.Now()
	p.clock.reading.Store(0)
	m, ok := p.Resign(2)
	if r, err := releaseOf(m); !ok || r.At != last || err != nil {
		t.Errorf("Resign() = %+v, %v, %v, want a release at %d", r, ok, err, last)
	}
	p.want(core.Closed)
}

// Close before it does not take the word away, and once more it says the same.
func TestResignAfterClose(t *testing.T) {
	p := leading(t)
	p.Close()
	for range 2 {
		if m, ok := p.Resign(2); !ok || m.GetTerm() != 2 {
			t.Errorf("Resign() after Close = %v, %v, want a message of term 2", m, ok)
		}
	}
	p.want(core.Closed)
	p.follow(3, 2)
	if _, ok := p.Resign(2); ok {
		t.Error("Resign() of a follower = true, want false")
	}
}

// The goroutine that holds the lock may hang, as in a logger of the embedder: Resign does not hang
// with it. A lock that is busy is waited for.
func TestResignDoesNotWaitForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t, bubbled)
		p.mu.Lock()
		begun := time.Now()
		if _, ok := p.Resign(2); ok || time.Since(begun) != lockPatience {
			t.Errorf("Resign() = %v after %v, want false after %v", ok, time.Since(begun), lockPatience)
		}
		time.AfterFunc(lockPatience/2, p.mu.Unlock)
		if _, ok := p.Resign(2); !ok {
			t.Error("Resign() = false though the lock was free in time, want true")
		}
		p.want(core.Closed)
	})
}

// bereaved is a follower that has promised node 2 something in term 2, by what it has read
// from the given process.
func bereaved(t *testing.T, from ProcessID) *puppet {
	t.Helper()
	p := newPuppet(t)
	p.follow(2, 2)
	p.probed(from)
	if got := p.Info().Promise; got.Term != 2 || got.Remaining == 0 {
		t.Fatalf("Info().Promise = %+v, want one of term 2", got)
	}
	return p
}

// probed hands it a heartbeat of node 2.
func (p *puppet) probed(from ProcessID) {
	m := p.message(raftpb.MsgHeartbeat, 2, 1)
	attachProbe(m, core.Probe{Sent: p.clock.Now(), Duration: 900 * ms})
	p.Lease.Incoming(m, from)
}

// The message is what the leader would have said, and the filter lets it in.
func TestProcessDiedMakesTheMessage(t *testing.T) {
	p := bereaved(t, ProcessID{7})
	m, ok := p.ProcessDied(2, ProcessID{7})
	if !ok || m.GetType() != raftpb.MsgTimeoutNow || m.GetFrom() != 2 || m.GetTo() != 1 || m.GetTerm() != 2 {
		t.Fatalf("ProcessDied() = %v, %v, want a MsgTimeoutNow from 2 to 1 in term 2", m, ok)
	}
	if !core.IsProcessDied(m) {
		t.Error("it does not say that it is of a death: a detector takes it for a leader's wish")
	}
	if r, err := releaseOf(m); err != nil || r != (core.Release{Term: 2, At: core.Forever}) {
		t.Errorf("it carries %+v, %v, want a release of term 2 for ever", r, err)
	}
	if !p.Incoming(m) || p.CanCampaign() != nil {
		t.Error("Incoming() of it = false, or the member may not campaign, want neither")
	}
	p.probed(ProcessID{7}) // read late
	if p.CanCampaign() != nil {
		t.Error("CanCampaign() after a heartbeat of the dead = an error, want nil")
	}
	if s := p.Stats(); s.Deaths != 1 || s.VoidedPromises != 1 {
		t.Errorf("Stats() = %d deaths, %d voided, want 1 and 1", s.Deaths, s.VoidedPromises)
	}
}

// A promise is voided once, however often the death is reported.
func TestProcessDiedTwice(t *testing.T) {
	p := bereaved(t, ProcessID{7})
	for range 2 {
		if _, ok := p.ProcessDied(2, ProcessID{7}); !ok {
			t.Error("ProcessDied() = false, want the message each time")
		}
	}
	if s := p.Stats(); s.Deaths != 2 || s.VoidedPromises != 1 {
		t.Errorf("Stats() = %d deaths, %d voided, want 2 reports of one promise", s.Deaths, s.VoidedPromises)
	}
}

// Where nothing is void, there is no message, and the member is bound as before.
func TestProcessDiedThatVoidsNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		from   ProcessID
		leader uint64
		dead   ProcessID
		before func(p *puppet)
	}{
		{"of a former process", ProcessID{7}, 2, ProcessID{6}, nil},
		{"of another member", ProcessID{7}, 3, ProcessID{7}, nil},
		{"of itself", ProcessID{7}, 1, ProcessID{7}, nil},
		{"the promise is to a process that is not known", ProcessID{}, 2, ProcessID{7}, nil},
		{"a probe came by Incoming", ProcessID{7}, 2, ProcessID{7}, func(p *puppet) { p.probed(ProcessID{}) }},
		{"after Close", ProcessID{7}, 2, ProcessID{7}, func(p *puppet) { p.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := bereaved(t, tt.from)
			if tt.before != nil {
				tt.before(p)
			}
			if m, ok := p.ProcessDied(tt.leader, tt.dead); ok || m != nil {
				t.Errorf("ProcessDied() = %v, %v, want nil, false", m, ok)
			}
			if p.Info().Promise.Remaining == 0 {
				t.Error("Info().Promise.Remaining = 0, want the promise")
			}
		})
	}
}

// A member in its restart hold, or after a step of its clock, does not campaign after any death.
func TestProcessDiedInTheHold(t *testing.T) {
	p := bereaved(t, ProcessID{7})
	p.clock.reading.Add(-int64(10 * time.Millisecond))
	if m, ok := p.ProcessDied(2, ProcessID{7}); ok || m != nil || p.CanCampaign() == nil {
		t.Errorf("ProcessDied() after a step of the clock = %v, %v, may campaign: %v, want nil, false and a refusal", m, ok, p.CanCampaign())
	}
}

// A trace has one number for each process, and 0 for an unknown one.
func TestTracesTellProcessesApart(t *testing.T) {
	trace := leasetrace.New(100)
	p := newPuppet(t, func(c *Config) { c.Tracer = trace })
	p.follow(2, 2)
	for _, from := range []ProcessID{{7}, {15: 7}, {}} {
		p.probed(from)
	}
	p.ProcessDied(2, ProcessID{7})
	numbers := make(map[leasetrace.Kind][]uint64)
	events := make([]leasetrace.Event, 100)
	for _, e := range events[:trace.Since(0, events)] {
		numbers[e.Kind] = append(numbers[e.Kind], e.Number)
	}
	promised, died := numbers[leasetrace.KindPromise], numbers[leasetrace.KindProcessDied]
	if len(promised) != 3 || promised[0] == 0 || promised[1] == 0 || promised[0] == promised[1] || promised[2] != 0 {
		t.Errorf("promises to %v, want two numbers and 0 for the unknown process", promised)
	}
	if len(died) != 1 || died[0] != promised[0] {
		t.Errorf("deaths of %v, want one of %v", died, promised[0])
	}
}

// Step of the Node that RestartNode returns takes the process from its context.
func TestAWrappedNodeLearnsTheProcess(t *testing.T) {
	for name, ctx := range map[string]context.Context{"known": WithProcess(t.Context(), ProcessID{7}), "unknown": t.Context()} {
		t.Run(name, func(t *testing.T) {
			rc, cfg := pairConfig(t, logOf(t, "n1 n1", 1, 2))
			clock, _ := cfg.Clock.(*handClock)
			node, lease, err := RestartNode(rc, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer node.Stop()
			clock.Advance(time.Hour) // the restart hold ends, and the log is of term 9
			m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(10))}
			attachProbe(m, core.Probe{Sent: 1, Duration: 900 * ms})
			if err := node.Step(ctx, m); err != nil {
				t.Fatal(err)
			}
			if _, void := lease.ProcessDied(2, ProcessID{7}); void != (name == "known") {
				t.Errorf("ProcessDied() = %v", void)
			}
		})
	}
}

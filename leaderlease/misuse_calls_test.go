package leaderlease

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

func TestClosedLeaseRefusesByName(t *testing.T) {
	p := leading(t)
	p.Close()
	p.Close()
	closed := func(what string, err error) {
		t.Helper()
		if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.Closed || !errors.Is(err, ErrNoLease) {
			t.Errorf("%s after Close = %v, want %v", what, err, core.Closed)
		}
	}
	// The lease is not revived by what goes on around it.
	hb := p.heartbeat()
	if _, err := probeOf(hb); err == nil {
		t.Error("heartbeat after Close carries a probe, want none")
	}
	p.lead(3)
	p.Tick()
	p.commitChanges(1)
	p.ApplyConfState(voters(1))
	p.invalidate()
	p.SetDiskStalled(false)

	_, err := p.Read(t.Context())
	closed("Read", err)
	closed("StartRead", p.startRead().err)
	_, err = p.Token()
	closed("Token", err)
	_, _, err = p.Context(t.Context())
	closed("Context", err)
	closed("Do", p.Do(t.Context(), nil))
	p.want(core.Closed)
	if s := p.Info(); s.Status != core.Closed || s.Remaining != 0 {
		t.Errorf("Info() after Close = %v, %v, want %v", s.Status, s.Remaining, core.Closed)
	}
	events, stop := p.Watch()
	defer stop()
	wantEvent(t, events, Event{Term: 3, Status: core.Closed})
	// The voter's half goes on: an earlier promise binds this process too.
	p.follow(4, 2)
	p.promiseTo(2)
	if p.Incoming(p.message(raftpb.MsgVote, 3, 1)) {
		t.Error("Incoming(vote) after Close = true, want the promise kept")
	}
}

// Calls in an order that no embedding should have do no harm.
func TestCallsOutOfOrder(t *testing.T) {
	p := newPuppet(t)
	p.invalidate()
	p.SetDiskStalled(true)
	p.SetDiskStalled(false)
	p.Applied(0)
	if !p.Tick() {
		t.Error("Tick() of a new node = false, want true")
	}
	p.Ready(raft.Ready{})
	p.Incoming(&raftpb.Message{})
	p.Incoming(nil)
	p.want(core.NotLeader)
	p.lead(2)
	p.renew()
	p.sound()
}

package leaderlease

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// A nil *Lease leaves raft as it is.
func TestANilLeaseLeavesRaftAsItIs(t *testing.T) {
	var l *Lease
	vote := &raftpb.Message{Type: raftpb.MsgVote.Enum(), To: new(uint64(2))}
	rd := raft.Ready{
		SoftState: &raft.SoftState{RaftState: raft.StateCandidate},
		Messages:  []*raftpb.Message{vote}, ReadStates: []raft.ReadState{{Index: 1}},
	}
	if l.Ready(&rd); len(rd.Messages) != 1 || rd.Messages[0] != vote || vote.GetType() != raftpb.MsgVote || len(rd.ReadStates) != 1 {
		t.Errorf("Ready() leaves %v, want it as it was", rd)
	}
	if !l.Incoming(vote, ProcessID{}) || !l.Tick() || l.WouldBlock(&rd) || l.CanCampaign() != nil || l.ReadRequests() != nil {
		t.Error("a nil Lease keeps something back, or asks for something")
	}
}

// Everything else is refused, or does nothing: no method is left out.
func TestANilLeaseRefuses(t *testing.T) {
	var l *Lease
	refused := func(what string, err error) {
		t.Helper()
		if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.Disabled {
			t.Errorf("%s of a nil Lease = %v, want %v", what, err, core.Disabled)
		}
	}
	refused("Read", second(l.Read(t.Context())))
	refused("ReadIndex", second(l.ReadIndex(t.Context())))
	l.StartRead(t.Context(), ReadModeLease, func(_ ReadResult, err error) { refused("StartRead", err) })
	l.StartRead(t.Context(), ReadModeQuorum, func(_ ReadResult, err error) { refused("StartReadIndex", err) })
	refused("Token", second(l.Token()))
	refused("Do", l.Do(t.Context(), func(context.Context) error { return nil }))
	if index, s := l.TryRead(); index != 0 || s != core.Disabled {
		t.Errorf("TryRead() = %d, %v, want 0, %v", index, s, core.Disabled)
	}
	if i := l.Info(); i.Valid() || i.Status != core.Disabled {
		t.Errorf("Info() = %+v, want %v", i, core.Disabled)
	}
	events, stop := l.Watch()
	defer stop()
	wantEvent(t, events, Event{Status: core.Disabled})
	if _, more := <-events; more {
		t.Error("Watch() goes on, want it to end")
	}

	v := reflect.ValueOf(l)
	for m, value := range v.Methods() {
		in := make([]reflect.Value, m.Type.NumIn()-1)
		for i := range in {
			in[i] = reflect.Zero(m.Type.In(i + 1))
			if in[i].Kind() == reflect.Func {
				in[i] = reflect.ValueOf(func(ReadResult, error) {})
				if m.Name == "Do" {
					in[i] = reflect.ValueOf(func(context.Context) error { return nil })
				}
			}
		}
		value.Call(in) // panics where nil was forgotten
	}
}

package leaderlease

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// early fails the test unless Info names the change at index as one that raft takes for
// applied too early, or names no mistake if index is 0.
func (p *puppet) early(index string) {
	p.t.Helper()
	err := p.Info().Err
	_, ok := errors.AsType[*MisuseError](err)
	if index == "" && err != nil || index != "" && (!ok || !strings.Contains(err.Error(), "the configuration change at "+index)) {
		p.t.Fatalf("Info().Err = %v, want the change at %q named", err, index)
	}
}

// Without AsyncStorageWrites the next Ready shows that Advance was called.
func TestAnAdvanceBeforeApplyConfStateIsNamed(t *testing.T) {
	var log strings.Builder
	p := leading(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p.commitChanges(1) // at 3
	p.early("")
	p.want(core.ConfPending)
	p.Ready(raft.Ready{})
	p.Ready(raft.Ready{})
	p.early("3")
	p.want(core.ConfPending)
	if _, err := p.Token(); !strings.Contains(err.Error(), "before Advance") {
		t.Errorf("Token() = %v, want the mistake as its cause", err)
	}
	p.ApplyConfState(voters(1, 2, 3))
	p.sound()
	if n := strings.Count(p.logged(&log), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in the log, want 1", n)
	}
	// In the order that is right.
	p.Applied(p.commitChanges(1) - 1)
	p.ApplyConfState(voters(1, 2, 3))
	p.Applied(p.last)
	p.Ready(raft.Ready{})
	p.sound()
}

// With AsyncStorageWrites Readys come before changes are applied. What tells is
// MsgStorageApplyResp, where it passes through Incoming, as with Wrap.
func TestAnEarlyMsgStorageApplyRespIsNamed(t *testing.T) {
	applied := func(p *puppet, index uint64) {
		m := p.message(raftpb.MsgStorageApplyResp, raft.LocalApplyThread, 1)
		m.Entries = []*raftpb.Entry{p.entry(index)}
		p.Incoming(m)
	}
	p := leading(t, inAsyncMode)
	index := p.commitChanges(1) // at 3
	p.Ready(raft.Ready{})
	p.commitNew()
	applied(p, index-1)
	p.early("")
	p.want(core.ConfPending)
	applied(p, index)
	p.early("3")
	p.ApplyConfState(voters(1, 2, 3))
	p.sound()

	index = p.commitChanges(1)
	p.ApplyConfState(voters(1, 2, 3))
	applied(p, index)
	p.sound()
}

// A leader appends a change only if it takes the one before for applied.
func TestASecondChangeBeforeTheFirstIsAppliedIsAMisuse(t *testing.T) {
	for name, amend := range map[string]func(*Config){"sync": func(*Config) {}, "async": inAsyncMode} {
		t.Run(name, func(t *testing.T) {
			p := leading(t, amend)
			p.commitChanges(1)
			p.last++
			p.Ready(raft.Ready{Entries: []*raftpb.Entry{p.change(p.last)}})
			p.misused("the configuration change at 4 before the one at 3")
			p.ApplyConfState(voters(1, 2, 3))
			p.misused("before the one at 3 was applied")
		})
	}
}

// Those that follow append what the leader sends; a new leader finds changes in its log;
// and a change that was applied without ApplyConfState is another mistake.
func TestChangesThatALeaderMayAppend(t *testing.T) {
	append1 := func(p *puppet) {
		t.Helper()
		p.last++
		p.Ready(raft.Ready{Entries: []*raftpb.Entry{p.change(p.last)}})
		if err := p.mu.misuse; err != nil {
			t.Errorf("misuse: %v, want none", err)
		}
	}
	p := newPuppet(t, inAsyncMode)
	p.follow(2, 2)
	p.commitChanges(1)
	append1(p)
	p.win(3) // its entry is a normal one
	if err := p.mu.misuse; err != nil {
		t.Errorf("misuse of a new leader: %v, want none", err)
	}

	p = leading(t)
	p.commitChanges(1)
	p.ApplyConfState(voters(1, 2, 3))
	append1(p)

	p = leading(t)
	p.Applied(p.commitChanges(1))
	append1(p)
	p.early("3 without ApplyConfState")
}

// A leader with two changes under way sends the second one when the first is applied, and
// not at all where nothing tells when that is.
func TestASecondChangeIsHeldBack(t *testing.T) {
	send := func(p *puppet, from, to uint64) bool {
		m := p.message(raftpb.MsgApp, 1, 2)
		for i := from; i <= to; i++ {
			m.Entries = append(m.Entries, p.entry(i))
		}
		return len(p.Ready(raft.Ready{Messages: []*raftpb.Message{m}})) == 1
	}
	begin := func() *puppet {
		p := leading(t, inAsyncMode)
		p.commitChanges(1) // at 3
		p.Ready(raft.Ready{Entries: []*raftpb.Entry{p.entry(4), p.change(5), p.change(6)}})
		p.last = 6
		if !send(p, 3, 4) || send(p, 3, 5) || send(p, 6, 6) {
			t.Error("want entries up to 4 sent, and none from the change at 5 on")
		}
		return p
	}
	for name, applied := range map[string]func(p *puppet){
		"told":    func(p *puppet) { p.ApplyConfState(voters(1, 2, 3)) },
		"applied": func(p *puppet) { p.Applied(3) },
	} {
		p := begin()
		applied(p)
		if !send(p, 4, 5) || send(p, 6, 6) {
			t.Errorf("%s: want the change at 5 sent, and not the one at 6", name)
		}
		p.commitTo(5)
		p.Applied(5)
		if !send(p, 6, 6) {
			t.Errorf("%s: want the change at 6 sent when the one at 5 is applied", name)
		}
	}
	p := begin()
	p.win(3)
	if !send(p, 5, 6) {
		t.Error("a new term begins: want both sent, since raft appends no third one")
	}

	p = newPuppet(t) // Applied is never called
	p.win(2)
	p.commitTo(2)
	p.commitChanges(1)
	p.Ready(raft.Ready{Entries: []*raftpb.Entry{p.change(4)}})
	if !send(p, 4, 4) {
		t.Error("want the change at 4 sent where nothing tells when the one at 3 is applied")
	}
}

// A member that has a change to apply does not ask for votes.
func TestACandidateAppliesChangesFirst(t *testing.T) {
	p := newPuppet(t)
	p.Applied(1)
	p.follow(2, 2)
	p.commitChanges(1)
	asks := func() bool {
		return len(p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgPreVote, 1, 2)}})) == 1
	}
	if asks() {
		t.Error("a pre-vote is asked for before the change is applied")
	}
	if p.ApplyConfState(voters(1, 2)); !asks() {
		t.Error("no pre-vote is asked for when the change is applied")
	}
}

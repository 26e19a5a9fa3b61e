package kvnode

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// image keeps what the directory of a member that is stopped holds.
func (c *cluster) image(name string) (dir string) {
	c.t.Helper()
	dir = c.cfgs[name].DataDir
	if err := os.CopyFS(dir+".image", os.DirFS(dir)); err != nil {
		c.t.Fatal(err)
	}
	return dir + ".image"
}

// setBack stops a member and gives it the directory that it had.
func (c *cluster) setBack(name, image string) {
	c.t.Helper()
	c.stop(name)
	dir := c.cfgs[name].DataDir
	if err := errors.Join(os.RemoveAll(dir), os.Rename(image, dir)); err != nil {
		c.t.Fatal(err)
	}
}

// wantLost waits until n has ended because it has lost its data, and wants the error
// to say what to do.
func wantLost(t *testing.T, n *Node, within time.Duration, words ...string) {
	t.Helper()
	select {
	case <-n.Done():
	case <-time.After(within):
		t.Fatalf("%s runs %v after it was set back, want it ended", n.Name(), within)
	}
	err := n.Err()
	if !errors.Is(err, ErrLost) {
		t.Fatalf("Err() = %v, want ErrLost", err)
	}
	for _, word := range append(words, n.cfg.DataDir, "member remove", "member add", "Config.Existing") {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("Err() = %v, want it to say %q", err, word)
		}
	}
}

// A member whose directory went back in time ends, and says so, while the leader that
// it had acknowledged more to still leads.
func TestAMemberThatWentBackEnds(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		name := c.followers(leader)[0].Name()
		c.put(leader, "k", "1")
		c.stop(name)
		image := c.image(name)
		c.start(name)
		c.put(leader, "k", "2")
		time.Sleep(time.Second)
		c.setBack(name, image)
		wantLost(t, c.start(name), time.Second, "acknowledged")
		if value, _ := c.get(leader, ReadLease, "k"); value != "2" {
			t.Errorf("k = %q, want 2", value)
		}
	})
}

// What a peer holds against a process that it meets for the first time.
func TestWhoHasGoneBack(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		term, last := leader.Term(), leader.last.Load()
		for _, tc := range []struct {
			name string
			at   *Node
			log  transport.LogEnd
			back bool
		}{
			{"all that it acknowledged", leader, transport.LogEnd{Process: "1", Term: term, Last: last}, false},
			{"one entry less", leader, transport.LogEnd{Process: "2", Term: term, Last: last - 1}, true},
			{"it tries again", leader, transport.LogEnd{Process: "2", Term: term, Last: last - 1}, true},
			{"a later leader has cut its log", leader, transport.LogEnd{Process: "3", Term: term + 1, Last: last - 1}, false},
			{"a term before that in which it acknowledged", leader, transport.LogEnd{Process: "4", Term: term - 1, Last: last}, true},
			{"a former version", leader, transport.LogEnd{Last: last - 1}, false},
			{"a process that was met before", leader, f.atStart, false},
			{"a peer that knows nothing", c.followers(leader)[1], transport.LogEnd{Process: "5", Term: term + 3, Commit: last, Last: last}, false},
			{"less than was committed when that peer met it", c.followers(leader)[1], transport.LogEnd{Process: "6", Term: term + 3, Last: last - 1}, true},
			{"a term before that in which that peer met it", c.followers(leader)[1], transport.LogEnd{Process: "7", Term: term + 2, Last: last}, true},
		} {
			err := peers{tc.at}.Admit(transport.Hello{From: f.ID(), Instance: f.id.Instance, Name: f.Name(), Format: f.cfg.newestFormat, Log: tc.log})
			refusal, refused := errors.AsType[*transport.Refusal](err)
			if refused != tc.back || refused && (refusal.Reason != transport.ReasonWiped || !strings.Contains(refusal.Text, "gone back in time")) {
				t.Errorf("%s: Admit() = %v, want a refusal: %v", tc.name, err, tc.back)
			}
		}
	})
}

// What a candidate hears from those it asks is evidence, and what a leader hears.
func TestAnswersAreEvidence(t *testing.T) {
	var v witness
	v.init()
	answer := func(typ raftpb.MessageType, term, commit uint64, reject bool) {
		v.answer(&raftpb.Message{Type: typ.Enum(), From: new(uint64(2)), Term: new(term), Commit: new(commit), Index: new(10 * commit), Reject: new(reject)})
	}
	answer(raftpb.MsgVoteResp, 9, 9, false)
	if len(v.mu.of) > 0 {
		t.Error("the answer of a member that is not connected is kept")
	}
	want := func(what string, term, index uint64) {
		t.Helper()
		e, unlock := v.lock(2)
		defer unlock()
		if e.term != term || e.index != index {
			t.Errorf("after %s: term %d, index %d, want %d, %d", what, e.term, e.index, term, index)
		}
	}
	answer(raftpb.MsgHeartbeatResp, 9, 9, false)
	want("something else", 0, 0)
	answer(raftpb.MsgPreVoteResp, 9, 3, false)
	want("a vote that would be given", 0, 3)
	answer(raftpb.MsgVoteResp, 9, 4, true)
	want("a vote that was refused", 0, 4)
	answer(raftpb.MsgVoteResp, 9, 2, false)
	want("a vote", 9, 4)
	answer(raftpb.MsgVoteResp, 8, 2, false)
	want("a late vote", 9, 4)
	for _, tc := range []struct {
		what                      string
		term, index               uint64
		reject                    bool
		wantTerm, acked, wantLast uint64
	}{
		{"entries refused", 12, 9, true, 9, 0, 0},
		{"entries", 10, 7, false, 10, 10, 70},
		{"a late answer", 10, 6, false, 10, 10, 70},
		{"fewer entries of a later term", 11, 5, false, 11, 11, 50},
		{"an answer to a former leader", 10, 9, false, 11, 11, 50},
	} {
		answer(raftpb.MsgAppResp, tc.term, tc.index, tc.reject)
		want(tc.what, tc.wantTerm, 4)
		e, unlock := v.lock(2)
		if e.ackedTerm != tc.acked || e.acked != tc.wantLast {
			t.Errorf("after %s: acknowledged %d in term %d, want %d, %d", tc.what, e.acked, e.ackedTerm, tc.wantLast, tc.acked)
		}
		unlock()
	}
}

// A process that has acknowledged more since it was met is let in whenever it connects
// anew.
func TestWhoConnectsAnewHasNotGoneBack(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		f := c.followers(c.leader())[0]
		c.stop(f.Name())
		f = c.start(f.Name())
		leader := c.leader()
		for range 5 {
			c.put(leader, "k", "v")
			time.Sleep(time.Second)
			c.isolate(f)
			time.Sleep(10 * time.Second)
			c.net.HealAll()
			time.Sleep(10 * time.Second)
			leader = c.leader()
		}
		if err := f.Err(); err != nil {
			t.Errorf("Err() = %v, want nil", err)
		}
	})
}

// However many processes with an old copy of its directory are started meanwhile, and
// refused or let in, a member that was right goes on.
func TestCopiesDoNotEndTheMember(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		copied := func(process string, last uint64) error {
			return peers{leader}.Admit(transport.Hello{
				From: f.ID(), Instance: f.id.Instance, Name: f.Name(), Format: f.cfg.newestFormat,
				Log: transport.LogEnd{Process: process, Term: leader.Term(), Last: last},
			})
		}
		for i := range often(2*maxAdmitted, 3) {
			if err := copied(fmt.Sprint("old", i), 1); err == nil {
				t.Fatal("an old copy was let in")
			}
			if err := copied(fmt.Sprint("new", i), leader.last.Load()); err != nil {
				t.Fatal(err)
			}
			c.isolate(f) // it connects anew, as it does when a copy has taken its place
			time.Sleep(20 * time.Second)
			c.net.HealAll()
			time.Sleep(20 * time.Second)
			leader = c.leader()
		}
		if err := f.Err(); err != nil {
			t.Errorf("Err() = %v, want nil", err)
		}
		e, unlock := leader.loop.witness.lock(f.ID())
		defer unlock()
		if got := len(e.admitted); got > maxAdmitted {
			t.Errorf("%d processes are remembered, want %d at most", got, maxAdmitted)
		}
	})
}

// A leader that knows of more, but says nothing when the member connects, as one of a
// former version, ends it with its next heartbeat.
func TestAHeartbeatBeyondTheLogEndsTheMember(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		at := f.last.Load()
		f.calls.Push(func(*raftLoop) {
			f.loop.step(&raftpb.Message{
				Type: raftpb.MsgHeartbeat.Enum(), From: new(leader.ID()), To: new(f.ID()), Term: new(leader.Term()), Commit: new(at + 100),
			})
		})
		wantLost(t, f, time.Second, fmt.Sprint(at+100), leader.Name())
	})
}

// Other messages that raft must not see are said once; answers to a former process of
// a leader are nobody's fault.
func TestDroppedMessagesAreSaidOnce(t *testing.T) {
	var log lines
	inCluster(t, 1, func(cfg *Config) { cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		n := c.leader()
		for _, tc := range []struct {
			term uint64
			want int
		}{{n.Term() - 1, 0}, {n.Term(), 1}} {
			done := n.call(func() {
				for range 100 {
					n.loop.step(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: new(uint64(7)), To: new(n.ID()), Term: new(tc.term), Index: new(uint64(1000))})
				}
			})
			if got := log.count("message dropped"); !done || got != tc.want {
				t.Errorf("100 messages of term %d made %d lines, want %d", tc.term, got, tc.want)
			}
		}
	})
}

// A member that was removed hears what to do if it is to come back.
func TestARemovedMemberHearsWhatToDo(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(10 * time.Second)
		goes := c.followers(leader)[0]
		if err := leader.RemoveMember(t.Context(), goes.ID()); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, goes)
		if err := goes.Err(); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "remove "+goes.cfg.DataDir) || !strings.Contains(err.Error(), "member add "+goes.Name()) {
			t.Errorf("Err() = %v, want ErrRemoved, and the way back", err)
		}
	})
}

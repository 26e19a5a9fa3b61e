package kvnode

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// wantNoStart starts a member that has lost its data again, and wants it to say what it
// said when it ended.
func (c *cluster) wantNoStart(name string, ended error) {
	c.t.Helper()
	delete(c.nodes, name)
	cfg := c.cfgs[name]
	_, err := c.tryStart(name)
	for what, err := range map[string]error{"Start()": err, "CheckDataDir()": cfg.CheckDataDir()} {
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), ended.Error()) {
			c.t.Errorf("%s after the loss was proven = %v, want %v", what, err, ended)
		}
	}
}

// A member that is proven to have lost what it had acknowledged is not started again,
// although the leader that knew is gone: with its vote a member that lacks an
// acknowledged write would be elected.
func TestAProvenLossIsKept(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f, third := c.followers(leader)[0], c.followers(leader)[1]
		c.put(leader, "k", "1")
		time.Sleep(time.Second)
		c.stop(f.Name())
		image := c.image(f.Name())
		c.start(f.Name())
		time.Sleep(3 * time.Second)
		c.isolate(third)
		c.put(leader, "k", "2")
		time.Sleep(time.Second)
		c.setBack(f.Name(), image)
		f = c.start(f.Name())
		wantLost(t, f, time.Second)
		c.crash(leader)
		c.net.HealAll()
		c.wantNoStart(f.Name(), f.Err())
	})
}

// So is one that a heartbeat has proven it to, if a member has sent that.
func TestALossProvenByAHeartbeatIsKept(t *testing.T) {
	for _, member := range []bool{true, false} {
		t.Run(fmt.Sprintf("member=%t", member), func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				leader := c.leader()
				f := c.followers(leader)[0]
				from := leader.ID()
				if !member {
					from = 99 // others vouch for it, and it is not registered yet
				}
				beyond := &raftpb.Message{
					Type: raftpb.MsgHeartbeat.Enum(), From: new(from), To: new(f.ID()), Term: new(leader.Term()), Commit: new(f.last.Load() + 100),
				}
				f.calls.Push(func(*raftLoop) { f.loop.step(beyond) })
				wantLost(t, f, time.Second)
				if member {
					c.wantNoStart(f.Name(), f.Err())
				} else {
					c.start(f.Name())
				}
			})
		})
	}
}

// Whoever is not a member ends none.
func TestARefusalByAStrangerIsNothing(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		f := c.followers(c.leader())[0]
		peers{f}.Refused(99, &transport.RefusedError{
			Peer: 99, Reason: transport.ReasonWiped, Text: "gone back", Term: f.Term(), Index: f.last.Load() + 1,
		})
		time.Sleep(time.Second)
		if err := f.Err(); err != nil {
			t.Errorf("the member has ended: %v", err)
		}
	})
}

// A refusal ends a member for good only if it names what this one sees itself that it
// has not.
func TestARefusalThatProvesNothingIsNotKept(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refusal func(peer, f *Node) *transport.RefusedError
		kept    bool
	}{
		{"more than it has", func(peer, f *Node) *transport.RefusedError {
			return &transport.RefusedError{Peer: peer.ID(), Term: f.Term(), Index: f.last.Load() + 1}
		}, true},
		{"a later term", func(peer, f *Node) *transport.RefusedError {
			return &transport.RefusedError{Peer: peer.ID(), Term: f.Term() + 1, Index: f.last.Load()}
		}, true},
		{"what this process has acknowledged", func(peer, f *Node) *transport.RefusedError {
			return &transport.RefusedError{Peer: peer.ID(), Term: f.Term(), Index: f.last.Load()}
		}, false},
		{"a former version, or another directory", func(peer, _ *Node) *transport.RefusedError {
			return &transport.RefusedError{Peer: peer.ID()}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				leader := c.leader()
				f := c.followers(leader)[0]
				c.put(leader, "k", "v")
				time.Sleep(time.Second)
				refused := tc.refusal(leader, f)
				refused.Reason, refused.Text = transport.ReasonWiped, "gone back"
				peers{f}.Refused(refused.Peer, refused)
				wantLost(t, f, time.Second, "gone back")
				if tc.kept {
					c.wantNoStart(f.Name(), f.Err())
					return
				}
				c.start(f.Name())
				if got, _ := c.get(c.nodes[f.Name()], ReadLease, "k"); got != "v" {
					t.Errorf("k = %q, want v", got)
				}
			})
		})
	}
}

// A leader keeps what was acknowledged to it when another one leads.
func TestWhoLedKnowsWhatWasAcknowledged(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f, next := c.followers(leader)[0], c.followers(leader)[1]
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		term, last := leader.Term(), leader.last.Load()
		if err := leader.MoveLeader(t.Context(), next.ID()); err != nil {
			t.Fatal(err)
		}
		c.isolate(f) // the next leader's acknowledgements go to that one
		for _, tc := range []struct {
			process    string
			term, last uint64
			refused    bool
		}{
			{"1", term, last - 1, true},
			{"2", term - 1, last, true},
			{"3", term, last, false},
			{"4", term + 1, last - 1, false},
		} {
			err := leader.loop.witness.setBack(transport.Hello{From: f.ID(), Log: transport.LogEnd{Process: tc.process, Term: tc.term, Last: tc.last}})
			refusal, refused := errors.AsType[*transport.Refusal](err)
			if refused != tc.refused || refused && (refusal.Term != term || refusal.Index < last-1) {
				t.Errorf("setBack(term %d, last %d) = %+v, want a refusal: %v", tc.term, tc.last, err, tc.refused)
			}
		}
	})
}

// Peers shake hands while the loop is held up.
func TestAdmitDoesNotWaitForTheLoop(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		time.Sleep(time.Second)
		held := make(chan struct{})
		defer close(held)
		leader.calls.Push(func(*raftLoop) { <-held })
		time.Sleep(time.Second)
		done := make(chan error, 1)
		go func() {
			done <- peers{leader}.Admit(transport.Hello{From: f.ID(), Instance: f.id.Instance, Name: f.Name(), Format: f.cfg.newestFormat, Log: f.atStart})
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Admit() = %v, want nil", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Admit() waits for the loop")
		}
	})
}

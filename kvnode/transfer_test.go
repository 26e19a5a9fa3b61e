package kvnode

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// restarted restarts the follower of leader with the lowest ID, so that it is in its restart hold: it
// neither votes nor campaigns. Otherwise it would be the transferee, because it has as much of the log as
// the other.
func (c *cluster) restarted(leader *Node) *Node {
	c.t.Helper()
	time.Sleep(2 * time.Second) // the restart holds of the others are over, and the logs are equal
	others := c.followers(leader)
	first := others[0]
	for _, n := range others {
		if n.ID() < first.ID() {
			first = n
		}
	}
	c.stop(first.Name())
	back := c.start(first.Name())
	time.Sleep(70 * time.Millisecond) // the leader has its hello
	if hold := back.Status().Lease.Promise.Hold; hold < 2*back.cfg.TickInterval {
		c.t.Fatalf("the rest of a restart hold after 70 ms is %v, want at least two ticks", hold)
	}
	return back
}

func TestStopPassesOverAHeldMember(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		back := c.restarted(leader)
		begun := time.Now()
		c.stop(leader.Name())
		next := c.leader()
		if took := time.Since(begun); took > shortPromise/2 || next == back {
			t.Errorf("%s leads after %v, want the member that has not restarted, within %v", next.Name(), took, shortPromise/2)
		}
	})
}

// The only other member may not campaign yet, so the leader stays and serves until it may.
func TestStopWaitsForAHeldMember(t *testing.T) {
	inCluster(t, 3, former, // with a long restart hold
		func(t *testing.T, c *cluster) {
			leader := c.leader()
			back := c.restarted(leader)
			for _, n := range c.followers(leader) {
				if n != back {
					c.stop(n.Name())
				}
			}
			stopped := make(chan error, 1)
			go func() { stopped <- leader.Stop(t.Context()) }()
			time.Sleep(300 * time.Millisecond)
			c.put(back, "k", "v")
			if err := <-stopped; err != nil {
				t.Fatal(err)
			}
			delete(c.nodes, leader.Name())
			if now := back.Leader(); now != back.ID() {
				t.Errorf("%x leads when the old leader has stopped, want %x: it may campaign by then", now, back.ID())
			}
		})
}

// The first transferee does not get the request, so the leader asks another.
func TestStopTriesTheNextMember(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(2 * time.Second)
		others := c.followers(leader)
		deaf, next := others[0], others[1]
		if deaf.ID() > next.ID() {
			deaf, next = next, deaf
		}
		c.net.CutOneWay(leader.Name(), deaf.Name())
		begun := time.Now()
		c.stop(leader.Name())
		took := time.Since(begun)
		if now := next.Leader(); now != next.ID() || took > 600*time.Millisecond {
			t.Errorf("%x leads %v after the leader began to stop, want %x within 600ms", now, took, next.ID())
		}
	})
}

// The only transferee drops the first request, because of a restart hold that its leader does not know of.
// It is asked again.
func TestTheOnlyTransfereeIsAskedAgain(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		back := c.restarted(leader)
		for back.Status().Lease.Promise.Hold > 100*time.Millisecond {
			time.Sleep(10 * time.Millisecond)
		}
		begun := time.Now()
		leader.transfers.askToLead(back.ID())
		time.Sleep(transfereeTime)
		if err := leader.MoveLeader(t.Context(), back.ID()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 500*time.Millisecond {
			t.Errorf("the only transferee leads %v after the request that it dropped, want 500ms at most", took)
		}
	})
}

func TestMoveLeaderWaitsForAHeldMember(t *testing.T) {
	inCluster(t, 3, former, // with a long restart hold
		func(t *testing.T, c *cluster) {
			leader := c.leader()
			back := c.restarted(leader)
			moved := make(chan error, 1)
			go func() { moved <- leader.MoveLeader(t.Context(), back.ID()) }()
			time.Sleep(300 * time.Millisecond)
			begun := time.Now()
			c.put(leader, "k", "v")
			if took := time.Since(begun); took > 100*time.Millisecond {
				t.Errorf("a write took %v while the leader waits for its transferee, want 100ms at most", took)
			}
			if err := <-moved; err != nil {
				t.Errorf("MoveLeader() to a member in its restart hold = %v, want it to wait", err)
			}
			if now := c.leader(); now != back {
				t.Errorf("%s leads, want %s", now.Name(), back.Name())
			}
		})
}

// A transfer to a member that does not take over is cancelled: raft would delay proposals for another
// election timeout.
func TestFailedTransferIsCancelled(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(2 * time.Second)
		deaf := c.followers(leader)[0]
		c.net.CutOneWay(leader.Name(), deaf.Name())
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		if err := leader.MoveLeader(ctx, deaf.ID()); err == nil {
			t.Fatal("MoveLeader() to a member that hears nothing = nil")
		}
		begun := time.Now()
		c.put(leader, "k", "v")
		if took := time.Since(begun); took > 150*time.Millisecond {
			t.Errorf("a write took %v after a transfer that failed, want a tick at most", took)
		}
	})
}

// A voter may be removed after the check of the registry.
func TestTransferToAnUnknownMember(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		if err := c.leader().transfers.transfer(t.Context(), 999); !errors.Is(err, ErrNotVoter) {
			t.Errorf("transfer() to a member that raft does not know = %v, want ErrNotVoter", err)
		}
	})
}

func TestRestOfHold(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct{ said, ago, want time.Duration }{
		{said: second, want: second},
		{said: second, ago: second / 4, want: 3 * second / 4},
		{said: second, ago: 2 * second, want: 0},
		{said: math.MaxInt64, want: second},
		{said: math.MaxInt64, ago: 2 * second, want: 0},
		{said: math.MinInt64, want: 0},
		{said: math.MinInt64, ago: second, want: 0},
	} {
		if got := restOfHold(tc.said, tc.ago, second); got != tc.want {
			t.Errorf("restOfHold(%v, %v, 1s) = %v, want %v", tc.said, tc.ago, got, tc.want)
		}
	}
}

func TestChooseTransferee(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct {
		name string
		all  []transferee
		id   uint64
		wait time.Duration
	}{
		{"no candidate", nil, 0, 0},
		{"no answer", []transferee{{id: 2, match: 9}, {id: 3, match: 9, hold: second}}, 0, 0},
		{"the most of the log", []transferee{{id: 2, match: 8, eligible: true}, {id: 3, match: 9, eligible: true}}, 3, 0},
		{"in a tie the lowest ID", []transferee{{id: 3, match: 9, eligible: true}, {id: 2, match: 9, eligible: true}}, 2, 0},
		{"an answer before more of the log", []transferee{{id: 2, match: 8, eligible: true}, {id: 3, match: 9}}, 2, 0},
		{"no hold before more of the log", []transferee{{id: 2, match: 8, eligible: true}, {id: 3, match: 9, eligible: true, hold: 1}}, 2, 0},
		{"not asked before more of the log", []transferee{{id: 2, match: 8, eligible: true}, {id: 3, match: 9, eligible: true, tries: 1}}, 2, 0},
		{"all were asked", []transferee{{id: 2, match: 8, eligible: true, tries: 1}, {id: 3, match: 9, eligible: true, tries: 1}}, 3, 0},
		{"asked before held", []transferee{{id: 2, eligible: true, tries: 3}, {id: 3, eligible: true, hold: second}}, 2, 0},
		{"all are hold: the first to be free", []transferee{{id: 2, eligible: true, hold: 2 * second}, {id: 3, eligible: true, hold: second}}, 0, second},
		{"held without an answer", []transferee{{id: 2, hold: 1}, {id: 3, eligible: true, hold: second}}, 0, second},
	} {
		if id, wait := chooseTransferee(tc.all); id != tc.id || wait != tc.wait {
			t.Errorf("%s: chooseTransferee() = %d, %v, want %d, %v", tc.name, id, wait, tc.id, tc.wait)
		}
	}
}

// Raft forgets which members answer each time that it has counted them. A transfer at that moment waits for new
// answers.
func TestTransferLooksAgainForAnswers(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(2 * time.Second)
		for _, n := range c.followers(leader) {
			c.net.Delay(n.Name(), leader.Name(), 20*time.Millisecond)
		}
		answering := func() (some int) {
			leader.call(func() {
				leader.loop.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
					if id != leader.ID() && pr.RecentActive {
						some++
					}
				})
			})
			return some
		}
		for answering() > 0 {
			time.Sleep(time.Millisecond)
		}
		begun := time.Now()
		if err := leader.transfers.transferAway(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := leader.Leader(); now == leader.ID() || time.Since(begun) > time.Second {
			t.Errorf("%x leads after %v, want another member within a second", now, time.Since(begun))
		}
	})
}

// A leader that fails resigns: the next one leads before the promises have ended, and records a
// resignation. A busy loop resigns, too. runtime.Goexit ends the loop as a panic does, without ending the
// process.
func TestALeaderThatEndsByItselfResigns(t *testing.T) {
	for name, end := range map[string]func(*Node){
		"a disk that fails": func(n *Node) {
			n.calls.Push(func(*raftLoop) {
				n.life.Fail(errors.New("write the log: the disk has failed"))
				time.Sleep(resignTime / 2) // the shutdown goes on meanwhile
			})
		},
		"a disk that fails when raft has forgotten which members answer": func(n *Node) {
			n.calls.Push(func(l *raftLoop) {
				for range n.cfg.electionTicks() {
					l.raw.Tick()
				}
				n.life.Fail(errors.New("write the log: the disk has failed"))
				runtime.Goexit() // before a member answers
			})
		},
		"a loop that panics": func(n *Node) { n.calls.Push(func(*raftLoop) { runtime.Goexit() }) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				old := c.leader()
				c.put(old, "k", "before")
				time.Sleep(time.Second)
				term := old.Term()
				others := c.followers(old)
				end(old)
				<-old.loop.resigned
				delete(c.nodes, old.Name())
				defer func() { old.life.Fail(errors.New("over")); <-old.Done() }()
				ended := time.Now()
				next := c.leader()
				took := time.Since(ended)
				if took > shortPromise*3/5 || next.Term() != term+1 {
					t.Errorf("%s leads term %d after %v, want term %d, before the promises have ended", next.Name(), next.Term(), took, term+1)
				}
				if s := c.leaseStatus(old); s != leaderlease.StatusClosed {
					t.Errorf("the lease of the resigned leader is %v, want %v", s, leaderlease.StatusClosed)
				}
				c.put(next, "k", "after")
				if got := next.Status().Suspicions.Last.Cause; got != detector.Resignation {
					t.Errorf("the next leader was elected after %v, want %v", got, detector.Resignation)
				}
				for _, n := range others {
					if v, _ := c.get(n, ReadLease, "k"); v != "after" {
						t.Errorf("%s reads %q, want %q", n.Name(), v, "after")
					}
				}
			})
		})
	}
}

// The transferee campaigns already. A second candidate in the same term would split the vote with it.
func TestResignationDuringATransferNamesTheTransferee(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.put(old, "k", "before")
		others := c.followers(old)
		for _, n := range others {
			c.net.Delay(old.Name(), n.Name(), time.Millisecond)
		}
		c.net.Delay(others[0].Name(), others[1].Name(), time.Millisecond)
		time.Sleep(time.Second)
		term, asked := old.Term(), max(others[0].ID(), others[1].ID()) // otherwise the lowest ID is named
		old.calls.Push(func(l *raftLoop) {
			l.raw.TransferLeader(asked)
			l.handleReadys()
			old.life.Fail(errors.New("write the log: the disk has failed"))
		})
		<-old.loop.resigned
		delete(c.nodes, old.Name())
		ended := time.Now()
		next := c.leader()
		if took := time.Since(ended); took > shortPromise*3/5 || next.ID() != asked || next.Term() != term+1 {
			t.Errorf("%x leads term %d after %v, want %x, term %d, before the promises have ended", next.ID(), next.Term(), took, asked, term+1)
		}
		<-old.Done()
	})
}

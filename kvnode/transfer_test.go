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

// A member that has restarted neither votes nor campaigns for a while. Whoever hands
// leadership over must not wait for it.

// restarted stops a follower of leader and starts it again, so that it is in its
// restart hold. It is the one that was taken for the successor before: of the lowest
// ID, with as much of the log as the other.
func (c *cluster) restarted(leader *Node) *Node {
	c.t.Helper()
	time.Sleep(2 * time.Second) // the others are out of theirs, and the logs are equal
	others := c.followers(leader)
	first := others[0]
	for _, n := range others {
		if n.ID() < first.ID() {
			first = n
		}
	}
	c.stop(first.Name())
	back := c.start(first.Name())
	time.Sleep(70 * time.Millisecond) // the leader knows of it
	if hold := back.Status().Lease.Promise.Hold; hold < 2*back.cfg.TickInterval {
		c.t.Fatalf("a member that has restarted 70 ms ago is in its restart hold for %v more, want longer", hold)
	}
	return back
}

func TestAStoppingLeaderPassesOverAMemberThatIsHeld(t *testing.T) {
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

// Nobody who is left may campaign yet, so the leader stays until one may: it serves
// meanwhile.
func TestAStoppingLeaderWaitsForAHeldMember(t *testing.T) {
	inCluster(t, 3, former, // which holds for long
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

// The first choice does not hear of it. Another does.
func TestAStoppingLeaderTriesTheNext(t *testing.T) {
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

// The only one there is drops the first request: it is in a hold that it has not told
// of, as one of a former version. It is asked again when that is over.
func TestTheOnlyHeirIsAskedAgain(t *testing.T) {
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
			t.Errorf("the only heir leads %v after the request that it dropped, want 500ms at most", took)
		}
	})
}

func TestMoveLeaderWaitsForAHeldMember(t *testing.T) {
	inCluster(t, 3, former, // which holds for long
		func(t *testing.T, c *cluster) {
			leader := c.leader()
			back := c.restarted(leader)
			moved := make(chan error, 1)
			go func() { moved <- leader.MoveLeader(t.Context(), back.ID()) }()
			time.Sleep(300 * time.Millisecond)
			begun := time.Now()
			c.put(leader, "k", "v")
			if took := time.Since(begun); took > 100*time.Millisecond {
				t.Errorf("a write took %v while the leader waits for its successor, want it to serve meanwhile", took)
			}
			if err := <-moved; err != nil {
				t.Errorf("MoveLeader() to a member in its restart hold = %v, want it to wait", err)
			}
			if now := c.leader(); now != back {
				t.Errorf("%s leads, want %s", now.Name(), back.Name())
			}
		})
}

// A transfer to a member that does not take over is called off: raft would keep
// proposals waiting for another election timeout.
func TestATransferThatFailsIsCalledOff(t *testing.T) {
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

// A voter may be removed between the look at the registry and that at raft.
func TestWhoIsNoVoterCannotLead(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		if err := c.leader().transfers.transfer(t.Context(), 999); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("transfer() to one that raft does not know = %v, want ErrUnknownMember", err)
		}
	})
}

func TestStillHeld(t *testing.T) {
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
			t.Errorf("restOfHold() of %v, said %v ago, 1s at most = %v, want %v", tc.said, tc.ago, got, tc.want)
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
		{"nobody", nil, 0, 0},
		{"nobody who answers", []transferee{{id: 2, match: 9}, {id: 3, match: 9, hold: second}}, 0, 0},
		{"who has most of the log", []transferee{{id: 2, match: 8, answers: true}, {id: 3, match: 9, answers: true}}, 3, 0},
		{"in a tie the first", []transferee{{id: 3, match: 9, answers: true}, {id: 2, match: 9, answers: true}}, 2, 0},
		{"who answers rather than who has most", []transferee{{id: 2, match: 8, answers: true}, {id: 3, match: 9}}, 2, 0},
		{"who may campaign rather than who has most", []transferee{{id: 2, match: 8, answers: true}, {id: 3, match: 9, answers: true, hold: 1}}, 2, 0},
		{"who was not asked rather than who has most", []transferee{{id: 2, match: 8, answers: true}, {id: 3, match: 9, answers: true, tries: 1}}, 2, 0},
		{"all were asked: again", []transferee{{id: 2, match: 8, answers: true, tries: 1}, {id: 3, match: 9, answers: true, tries: 1}}, 3, 0},
		{"who may, asked before, rather than who is held", []transferee{{id: 2, answers: true, tries: 3}, {id: 3, answers: true, hold: second}}, 2, 0},
		{"all are hold: the first to be free", []transferee{{id: 2, answers: true, hold: 2 * second}, {id: 3, answers: true, hold: second}}, 0, second},
		{"who is held and does not answer is not waited for", []transferee{{id: 2, hold: 1}, {id: 3, answers: true, hold: second}}, 0, second},
	} {
		if id, wait := chooseTransferee(tc.all); id != tc.id || wait != tc.wait {
			t.Errorf("chooseTransferee() of %s = %d, %v, want %d, %v", tc.name, id, wait, tc.id, tc.wait)
		}
	}
}

// Raft forgets who answers each time that it has counted them. Whoever stops then hands
// over all the same.
func TestAStoppingLeaderLooksAgain(t *testing.T) {
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

// A leader that ends by itself hands its promises back: the next one leads before they have
// ended, and says so. That waits for a loop that is busy. Runtime.Goexit ends the loop as a panic
// does, whose process would end.
func TestALeaderThatEndsByItselfResigns(t *testing.T) {
	for name, end := range map[string]func(*Node){
		"a disk that fails": func(n *Node) {
			n.calls.Push(func(*raftLoop) {
				n.life.Fail(errors.New("write the log: the disk has failed"))
				time.Sleep(resignTime / 2) // the shutdown goes on meanwhile
			})
		},
		"a disk that fails when raft has forgotten who answers": func(n *Node) {
			n.calls.Push(func(l *raftLoop) {
				for range n.cfg.electionTicks() {
					l.raw.Tick()
				}
				n.life.Fail(errors.New("write the log: the disk has failed"))
				runtime.Goexit() // before anybody answers
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
					t.Errorf("the lease of who has resigned is %v, want %v", s, leaderlease.StatusClosed)
				}
				c.put(next, "k", "after")
				if got := next.Status().Suspicions.Last.Way; got != detector.Resignation {
					t.Errorf("the next leader says %v, want %v", got, detector.Resignation)
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

// Whom raft has asked to take over campaigns already. A second one in the same term would split
// the vote with it, and nobody leads before their turns come.
func TestWhoEndsInATransferNamesWhoWasAsked(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.put(old, "k", "before")
		others := c.followers(old)
		for _, n := range others {
			c.net.Delay(old.Name(), n.Name(), time.Millisecond)
		}
		c.net.Delay(others[0].Name(), others[1].Name(), time.Millisecond)
		time.Sleep(time.Second)
		term, asked := old.Term(), max(others[0].ID(), others[1].ID()) // of equals the lowest is named
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

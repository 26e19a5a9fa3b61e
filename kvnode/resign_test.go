package kvnode

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

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

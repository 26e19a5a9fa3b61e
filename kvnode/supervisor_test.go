package kvnode

import (
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// fakeSupervisor is a supervisor that keeps the newest will.
type fakeSupervisor struct {
	secret transport.Secret
	mu     sync.Mutex
	will   transport.PeersToNotify
}

func (w *fakeSupervisor) ProcessID() transport.ProcessID { return w.secret.ProcessID() }

func (w *fakeSupervisor) SetPeers(will transport.PeersToNotify) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.will = will
}

// newest returns it.
func (w *fakeSupervisor) newest() transport.PeersToNotify {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.will
}

// sendDeathNotice sends a death notice to all peers that the will names.
func (c *cluster) sendDeathNotice(will transport.PeersToNotify, secret transport.Secret) {
	c.t.Helper()
	for _, peer := range will.Peers {
		if err := transport.SendDeathNotice(c.t.Context(), c.net.Dialer(will.Hello.Name), peer.Addrs[0], peer.ID, will.Hello, secret); err != nil {
			c.t.Error(err)
		}
	}
}

// supervised gives each member a supervisor.
func supervised(all *[]*fakeSupervisor) func(*Config) {
	return func(cfg *Config) {
		*all = append(*all, &fakeSupervisor{secret: transport.NewSecret()})
		cfg.Supervisor = (*all)[len(*all)-1]
	}
}

// supervisorOf returns n's.
func (c *cluster) supervisorOf(n *Node) *fakeSupervisor {
	w, ok := c.cfgs[n.Name()].Supervisor.(*fakeSupervisor)
	if !ok {
		c.t.Fatalf("%s has no supervisor", n.Name())
	}
	return w
}

// An obituary voids what was promised to the process that has died: the next one leads
// at once. One of another process is a hint.
func TestADeathNoticeVoidsThePromise(t *testing.T) {
	for name, tt := range map[string]struct {
		secret func(own transport.Secret) transport.Secret
		fast   bool
		ignore bool
	}{
		"of the process": {func(s transport.Secret) transport.Secret { return s }, true, false},
		"of the process, without closed connections": {func(s transport.Secret) transport.Secret { return s }, true, true},
		"of a former process":                        {func(transport.Secret) transport.Secret { return transport.NewSecret() }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*fakeSupervisor
			amend := supervised(&all)
			inCluster(t, 3, func(cfg *Config) { amend(cfg); cfg.IgnoreClosed = tt.ignore }, func(t *testing.T, c *cluster) {
				old := c.leader()
				c.put(old, "k", "before")
				time.Sleep(time.Second)
				w := c.supervisorOf(old)
				will := w.newest()
				if len(will.Peers) != 2 || will.Hello.From != old.ID() || will.Hello.ProcessID != w.ProcessID() {
					t.Fatalf("the will of %s is %+v, want the two others", old.Name(), will)
				}
				c.crash(old)
				died := time.Now()
				c.sendDeathNotice(will, tt.secret(w.secret))
				next := c.leader()
				took := time.Since(died)
				if fast := took < shortPromise/3; fast != tt.fast {
					t.Errorf("the next leader serves after %v, want at once: %v", took, tt.fast)
				}
				c.put(next, "k", "after")
				for _, n := range c.nodes {
					if v, _ := c.get(n, ReadLease, "k"); v != "after" {
						t.Errorf("%s reads %q, want %q", n.Name(), v, "after")
					}
				}
				s := next.Status().Suspicions
				if by := s.Last.Cause == detector.ProcessDied; by != tt.fast {
					t.Errorf("it says %+v, want an obituary: %v", s.Last, tt.fast)
				}
			})
		})
	}
}

// A death notice reveals the secret to each peer. A replay after the member has restarted and leads again voids
// nothing: the new process has another secret.
func TestAReplayedDeathNoticeVoidsNothing(t *testing.T) {
	var all []*fakeSupervisor
	var log lines
	amend := supervised(&all)
	inCluster(t, 3, func(cfg *Config) { amend(cfg); cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.put(old, "k", "before")
		time.Sleep(time.Second)
		w := c.supervisorOf(old)
		will := w.newest()
		c.crash(old)
		c.sendDeathNotice(will, w.secret)
		c.leader()
		void := log.count("promise_void=true")
		again := c.restart(old.Name(), false, func(cfg *Config) { cfg.Supervisor = &fakeSupervisor{secret: transport.NewSecret()} })
		if err := c.leader().MoveLeader(t.Context(), again.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		term := again.Term()
		c.sendDeathNotice(will, w.secret)
		time.Sleep(time.Second)
		if n := log.count("promise_void=true") - void; void == 0 || n != 0 {
			t.Errorf("the notice has voided %d promises, and its replay %d, want some and none", void, n)
		}
		if again.Term() != term || again.Leader() != again.ID() {
			t.Errorf("term %d, led by %x, want %d, by %x", again.Term(), again.Leader(), term, again.ID())
		}
	})
}

// What is said of a leader that lives and has no such process costs at most what a closed connection
// does, and does not fill the log.
func TestADeathNoticeOfALivingMemberIsASuspicion(t *testing.T) {
	var all []*fakeSupervisor
	var log lines
	amend := supervised(&all)
	inCluster(t, 3, func(cfg *Config) { amend(cfg); cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "before")
		time.Sleep(time.Second)
		term := leader.Term()
		for range 10 {
			c.sendDeathNotice(c.supervisorOf(leader).newest(), transport.NewSecret())
			time.Sleep(100 * time.Millisecond)
		}
		if leader.Term() != term || leader.Leader() != leader.ID() {
			t.Errorf("term %d, led by %x, want %d, by %x", leader.Term(), leader.Leader(), term, leader.ID())
		}
		if n := log.count("a member's process has died"); n != 2 {
			t.Errorf("%d lines say that it has died, want one of each follower", n)
		}
	})
}

// The death of a follower disturbs no member, and the list of peers to notify follows the membership.
func TestPeersToNotifyFollowTheMembers(t *testing.T) {
	var all []*fakeSupervisor
	inCluster(t, 3, supervised(&all), func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "before")
		f := c.followers(leader)
		term := leader.Term()
		c.crash(f[0])
		c.sendDeathNotice(c.supervisorOf(f[0]).newest(), c.supervisorOf(f[0]).secret)
		time.Sleep(time.Second)
		if leader.Term() != term {
			t.Errorf("term %d after a follower has died, want %d", leader.Term(), term)
		}
		if err := leader.RemoveMember(t.Context(), f[0].ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if left := c.supervisorOf(leader).newest().Peers; len(left) != 1 || left[0].ID != f[1].ID() {
			t.Errorf("the will names %+v, want %s alone", left, f[1].Name())
		}
	})
}

// A member that received the death notice needs the vote of a member that did not, and does not wait for the end
// of its promise.
func TestADeathNoticeToOneMember(t *testing.T) {
	var all []*fakeSupervisor
	inCluster(t, 3, supervised(&all), func(t *testing.T, c *cluster) {
		old := c.leader()
		c.put(old, "k", "before")
		time.Sleep(time.Second)
		w, told := c.supervisorOf(old), c.followers(old)[1]
		will := w.newest()
		will.Peers = slices.DeleteFunc(slices.Clone(will.Peers), func(a transport.PeerAddrs) bool { return a.ID != told.ID() })
		c.crash(old)
		died := time.Now()
		c.sendDeathNotice(will, w.secret)
		next := c.leader()
		if took := time.Since(died); next != told || took > shortPromise/2 {
			t.Errorf("%s leads after %v, want %s, before the promises have ended", next.Name(), took, told.Name())
		}
		c.put(next, "k", "after")
	})
}

// What a leader had sent waits for the loop for longer than a heartbeat, and is no sign of life after
// the word of a former process of its.
func TestMessagesBeforeTheDeathNoticeAreNoSignOfLife(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		c.put(f, "k", "before")
		c.net.CutOneWay(leader.Name(), f.Name())
		f.calls.Push(func(l *raftLoop) {
			l.control <- &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(leader.ID()), To: new(f.ID()), Term: new(l.leadership.Term())}
			l.processDied(leader.ID(), leaderlease.ProcessID{99})
			time.Sleep(3 * f.cfg.TickInterval) // others have the processor
		})
		time.Sleep(500 * time.Millisecond)
		if s := f.Status().Suspicions; s.FalseSuspicions != 0 || s.Forgets != 1 {
			t.Errorf("%+v, want that the hint was believed", s)
		}
		c.net.HealAll()
	})
}

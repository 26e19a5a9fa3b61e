package kvnode

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/raftwal/fs"
)

// former sets the defaults of former versions.
func former(cfg *Config) {
	cfg.TickInterval, cfg.LeaseDuration, cfg.MaxClockSkew = 100*time.Millisecond, 900*time.Millisecond, 180*time.Millisecond
}

// A killed leader is replaced when the promise to it has ended, because its connections end. If members
// ignore that, it takes an election timeout.
func TestKilledLeaderIsReplacedWhenItsPromiseEnds(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		inCluster(t, 3, func(cfg *Config) { cfg.IgnoreClosed = ignore }, func(t *testing.T, c *cluster) {
			for range 3 {
				old := c.leader()
				c.put(old, "k", "before")
				time.Sleep(time.Second)
				c.crash(old)
				died := time.Now()
				next := c.leader()
				took := time.Since(died)
				c.put(next, "k", "after")
				if fast := took < 350*time.Millisecond; fast == ignore || took < 150*time.Millisecond {
					t.Errorf("ignoring closed connections %v: the next leader serves after %v", ignore, took)
				}
				c.start(old.Name())
				time.Sleep(2 * time.Second)
				s := next.Status().Suspicions
				if hinted := s.Last.Cause == detector.ConnClosed && s.Forgets > 0; hinted == ignore {
					t.Errorf("ignoring closed connections %v: %+v", ignore, s)
				}
			}
		})
	}
}

// All connections between members are reset ten times a second. There is no election, the lease is held,
// and no write fails.
func TestStormOfResets(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		term := leader.Term()
		time.Sleep(time.Second)
		for range 100 {
			for _, a := range []string{"m1", "m2", "m3"} {
				for _, b := range []string{"m1", "m2", "m3"} {
					if a != b {
						c.net.Reset(a, b)
					}
				}
			}
			c.put(leader, "k", "v")
			time.Sleep(100 * time.Millisecond)
		}
		if got := leader.Term(); got != term || leader.Leader() != leader.ID() {
			t.Errorf("term %d, led by %x, want %d, by %x", got, leader.Leader(), term, leader.ID())
		}
		if s := c.followers(leader)[0].Status().Suspicions; s.Suspicions[detector.ConnClosed] == 0 || s.FalseSuspicions == 0 {
			t.Errorf("%+v, want suspicions that were false", s)
		}
	})
}

// Members of the former version have promises of nearly the election timeout. In each order of upgrades and
// downgrades the lease is held, except while the longer promise is saved, which takes one heartbeat. A
// directory has the longest promise that a process was asked for, so a second restart of each member lowers
// it.
func TestMembersWithOtherPromises(t *testing.T) {
	inCluster(t, 3, former, func(t *testing.T, c *cluster) {
		for _, amend := range []func(*Config){func(cfg *Config) {
			cfg.TickInterval, cfg.LeaseDuration, cfg.MaxClockSkew = 0, shortPromise, 0
		}, former} {
			for _, name := range []string{"m1", "m2", "m3"} {
				c.stop(name)
				cfg := c.cfgs[name]
				amend(&cfg)
				c.cfgs[name] = cfg
				c.start(name)
				time.Sleep(3 * time.Second)
				for range 3 {
					old := c.leader()
					if err := old.MoveLeader(t.Context(), c.followers(old)[0].ID()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					synctest.Wait()
					if l := c.leader(); c.leaseStatus(l) != leaderlease.StatusValid {
						t.Errorf("%s leads without a lease: %v", l.Name(), c.leaseStatus(l))
					}
				}
			}
			for _, name := range []string{"m1", "m2", "m3"} {
				c.stop(name)
				c.start(name)
				time.Sleep(3 * time.Second)
			}
			for _, n := range c.nodes {
				if lease := n.Status().Lease; lease.Promise.Saved != lease.Duration {
					t.Errorf("a restart of %s holds for %v, want %v as each of them asks for", n.Name(), lease.Promise.Saved, lease.Duration)
				}
			}
		}
	})
}

// Messages that a leader sent before its connections ended may wait for the loop for longer than a
// heartbeat. They are no signs of life then.
func TestMessagesBeforeTheEndOfConnections(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		c.put(f, "k", "before")
		c.net.CutOneWay(leader.Name(), f.Name())
		f.calls.Push(func(l *raftLoop) {
			for _, typ := range []raftpb.MessageType{raftpb.MsgHeartbeat, raftpb.MsgApp} {
				m := &raftpb.Message{Type: typ.Enum(), From: new(leader.ID()), To: new(f.ID()), Term: new(l.leadership.Term()), Index: new(l.last.Load()), LogTerm: new(l.leadership.Term())}
				if typ == raftpb.MsgHeartbeat {
					m.Index, m.LogTerm = nil, nil
					l.control <- m
					continue
				}
				l.bulk <- m
			}
			l.connectionsEnded(leader.ID())
			time.Sleep(3 * f.cfg.TickInterval) // the loop waits for a processor
		})
		time.Sleep(500 * time.Millisecond)
		if s := f.Status().Suspicions; s.FalseSuspicions != 0 || s.Forgets != 1 {
			t.Errorf("%+v, want a suspicion", s)
		}
		c.net.HealAll()
	})
}

// Both the transferee and the other member tell a transfer from silence.
func TestTransferIsToldFromSilence(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.put(old, "k", "before")
		time.Sleep(time.Second)
		next := c.followers(old)[0]
		if err := old.MoveLeader(t.Context(), next.ID()); err != nil {
			t.Fatal(err)
		}
		c.put(next, "k", "after")
		time.Sleep(time.Second)
		for _, n := range c.nodes {
			s := n.Status().Suspicions
			// The first entries of the next leader may arrive before its vote request. Then nothing says
			// why it leads, but there was no silence either.
			overtaken := n != next && s.Last == detector.FailOver{Detection: s.Last.Detection} && s.Last.Detection < 500*time.Millisecond && s.FalseSuspicions == 0
			told := s.Last.Cause == detector.Transfer && s.FailOvers[detector.Transfer] == 1 && s.Last.Election <= 500*time.Millisecond
			if n == old && s.FailOvers != [detector.NumCauses]uint64{} || n != old && !told && !overtaken {
				t.Errorf("%s, which led before: %v, saw %+v, want one transfer of those that did not", n.Name(), n == old, s)
			}
		}
	})
}

// A follower has handed proposals to a leader that it then forgets, although the leader lives. They do not
// fail, and are answered once the leader is heard again.
func TestProposalsOfAForgottenLeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		c.put(f, "k", "before")
		time.Sleep(time.Second)
		c.net.CutOneWay(leader.Name(), f.Name())
		wait := c.putApart(f, 1, time.Millisecond)
		f.calls.Push(func(l *raftLoop) { l.connectionsEnded(leader.ID()) })
		time.Sleep(500 * time.Millisecond)
		if s := f.Status(); s.Suspicions.Forgets != 1 || s.Leader != 0 {
			t.Errorf("leader %x, %+v, want the leader to be forgotten", s.Leader, s.Suspicions)
		}
		c.net.HealAll()
		wait()
		if s := f.Status(); s.Counts.FailedProposals != 0 || s.Leader != leader.ID() {
			t.Errorf("leader %x, %d proposals failed, want %x and none", s.Leader, s.Counts.FailedProposals, leader.ID())
		}
	})
}

// watched is longer than a leader is watched before its silence is a suspicion.
const watched = (learnBeats + 20) * 50 * time.Millisecond

// A leader that is cut off is replaced once its silence is longer than any before. Members that ignore
// silence, or have not watched the leader for long, wait for an election timeout.
func TestSilentLeaderIsReplacedBeforeAnElectionTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		ignore bool
		watch  time.Duration
		fast   bool
	}{
		"silence counts":     {false, watched, true},
		"it is ignored":      {true, watched, false},
		"not watched enough": {false, watched / 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, func(cfg *Config) { cfg.IgnoreSilence = tt.ignore }, func(t *testing.T, c *cluster) {
				old := c.leader()
				time.Sleep(tt.watch)
				c.isolate(old)
				died := time.Now()
				next := c.leader(old)
				took := time.Since(died)
				c.put(next, "k", "v")
				if fast := took < 400*time.Millisecond; fast != tt.fast {
					t.Errorf("the next leader serves after %v", took)
				}
				time.Sleep(100 * time.Millisecond) // a tick
				if s := next.Status().Suspicions; (s.Last.Cause == detector.LongSilence) != tt.fast && s.Last.Cause != detector.PreVote {
					t.Errorf("%s leads, and saw %+v", next.Name(), s)
				}
			})
		})
	}
}

// stall blocks n's loop, as if it waited for a processor.
func (n *Node) stall(long time.Duration) {
	n.calls.Push(func(*raftLoop) { time.Sleep(long) })
	time.Sleep(long)
}

// A follower with a late loop hears nothing meanwhile, and does not suspect its leader.
func TestOwnLatenessIsNoSilenceOfTheLeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		term := leader.Term()
		time.Sleep(watched)
		for _, f := range c.followers(leader) {
			for late := 50 * time.Millisecond; late < time.Second; late += 30 * time.Millisecond {
				f.stall(late)
				time.Sleep(time.Second)
			}
		}
		if got := leader.Term(); got != term || leader.Leader() != leader.ID() {
			t.Errorf("term %d, led by %x, want %d, by %x", got, leader.Leader(), term, leader.ID())
		}
		for _, f := range c.followers(leader) {
			if s := f.Status().Suspicions; s.Suspicions[detector.LongSilence] != 0 {
				t.Errorf("%s has suspected its leader: %+v", f.Name(), s)
			}
		}
	})
}

// Messages that wait for a follower's loop end the silence of its leader.
func TestArrivedMessagesEndSilence(t *testing.T) {
	inCluster(t, 3, func(cfg *Config) { cfg.DisableLease = true }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		time.Sleep(watched)
		c.net.CutOneWay(leader.Name(), f.Name())
		time.Sleep(190 * time.Millisecond)
		f.calls.do(func(l *raftLoop) {
			time.Sleep(80 * time.Millisecond) // not late enough to be a pause
			l.control <- &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(leader.ID()), To: new(f.ID()), Term: new(l.leadership.Term())}
			l.pollDetector()
			if s := l.detector.Stats(); s.Suspicions[detector.LongSilence] != 0 {
				t.Errorf("%+v, want no suspicion", s)
			}
		})
		c.net.HealAll()
	})
}

// Each minute the leader's loop stalls for longer than promises last, as at a checkpoint. That costs one
// election for each member that learns the longer silence, and none afterwards.
func TestStallsOfTheLoopAreLearnt(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		term := c.leader().Term()
		for range often(30, 4) {
			time.Sleep(time.Minute)
			l := c.leader()
			l.stall(350 * time.Millisecond)
			c.put(c.leader(), "k", "v")
		}
		if got := c.leader().Term(); got > term+3 {
			t.Errorf("%d stalls, and the term is %d, want %d at most", often(30, 4), got, term+3)
		}
	})
}

// Without faults there is no suspicion, and the status has the limit of silence.
func TestNoSuspicionWithoutSilence(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for range often(60, 2) {
			c.put(leader, "k", "v")
			time.Sleep(time.Minute)
		}
		for _, n := range c.nodes {
			want := 5 * n.cfg.TickInterval
			if n == leader {
				want = 0
			}
			if s := n.Status().Suspicions; s.Limit != want || s.Suspicions != [detector.NumCauses]uint64{} {
				t.Errorf("%s: %+v, want a limit of %v and no suspicion", n.Name(), s, want)
			}
		}
	})
}

// slowly makes each sync of the log's disk take that long.
func slowly(cfg *Config, sync time.Duration) {
	disk, ok := cfg.walFS.(*fs.Memory)
	if !ok {
		disk = fs.NewMemory()
		cfg.walFS = disk
	}
	disk.SetHook(func(op fs.Op) *fs.Fault {
		if op.Kind == fs.OpSync {
			time.Sleep(sync)
		}
		return nil
	})
}

// An election waits for the disks of two members, longer than the backoff of any member. A member that has
// voted does not campaign while that election may be won. Otherwise each candidate would depose the one
// before for seconds.
func TestAKilledLeaderIsReplacedWhereDisksAreSlow(t *testing.T) {
	for sync, members := range map[time.Duration]int{110 * time.Millisecond: 5, 150 * time.Millisecond: 3} {
		inCluster(t, members, func(cfg *Config) { slowly(cfg, sync) }, func(t *testing.T, c *cluster) {
			for range 3 {
				old := c.leader()
				time.Sleep(3 * time.Second)
				c.crash(old)
				died := time.Now()
				next := c.leader()
				if took := time.Since(died); took > 1300*time.Millisecond {
					t.Errorf("%d members, a sync of %v: the next leader, of term %d after %d, serves after %v", members, sync, next.Term(), old.Term(), took)
				}
				cfg := c.cfgs[old.Name()]
				slowly(&cfg, sync)
				c.start(old.Name())
			}
		})
	}
}

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

// former has the defaults of former versions.
func former(cfg *Config) {
	cfg.TickInterval, cfg.LeaseDuration, cfg.MaxClockSkew = 100*time.Millisecond, 900*time.Millisecond, 180*time.Millisecond
}

// A leader that is killed is replaced when the promise to it has ended, by whom its
// connections tell; without that, it takes an election timeout.
func TestAKilledLeaderIsReplacedWhenItsPromiseEnds(t *testing.T) {
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
				if hinted := s.Last.Way == detector.Hint && s.Forgets > 0; hinted == ignore {
					t.Errorf("ignoring closed connections %v: %+v", ignore, s)
				}
			}
		})
	}
}

// All links between members are reset ten times a second: nobody else leads, the lease is
// held, and no write fails.
func TestAStormOfResetsElectsNobody(t *testing.T) {
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
		if s := c.followers(leader)[0].Status().Suspicions; s.Hints[detector.Hint] == 0 || s.FalseAlarms == 0 {
			t.Errorf("%+v, want hints that were false alarms", s)
		}
	})
}

// Members of the former version have promises of nearly the election timeout. Whoever leads,
// and whoever changes to the new one first, or back: a lease is held, and only the heartbeat
// is missed in which the longer promise is saved. The directories remember the longest promise
// that a process was asked for, so a second restart of each member lowers it.
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

// What a leader has sent before its connections ended may wait for the loop for longer than
// a heartbeat, and is no sign of life then.
func TestWhatCameBeforeTheHintIsNoSignOfLife(t *testing.T) {
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
					l.urgent <- m
					continue
				}
				l.bulk <- m
			}
			l.connectionsEnded(leader.ID())
			time.Sleep(3 * f.cfg.TickInterval) // others have the processor
		})
		time.Sleep(500 * time.Millisecond)
		if s := f.Status().Suspicions; s.FalseAlarms != 0 || s.Forgets != 1 {
			t.Errorf("%+v, want that the hint was believed", s)
		}
		c.net.HealAll()
	})
}

// A transfer is told from silence, by who was asked and by who was not.
func TestATransferIsToldFromSilence(t *testing.T) {
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
			// What the next leader sends first may overtake its request for a vote: then nothing says
			// why it leads, but there was no silence either.
			overtaken := n != next && s.Last == detector.FailOver{Hint: s.Last.Hint} && s.Last.Hint < 500*time.Millisecond && s.FalseAlarms == 0
			told := s.Last.Way == detector.Transfer && s.FailOvers[detector.Transfer] == 1 && s.Last.Election <= 500*time.Millisecond
			if n == old && s.FailOvers != [detector.NumWays]uint64{} || n != old && !told && !overtaken {
				t.Errorf("%s, which led before: %v, saw %+v, want one transfer of those that did not", n.Name(), n == old, s)
			}
		}
	})
}

// A follower that forgets a leader that lives has handed it proposals: they are answered once
// it is heard again, and have not failed.
func TestWhatWasHandedToAForgottenLeaderIsAnswered(t *testing.T) {
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
			t.Errorf("leader %x, %+v, want that it was forgotten", s.Leader, s.Suspicions)
		}
		c.net.HealAll()
		wait()
		if s := f.Status(); s.Counts.FailedProposals != 0 || s.Leader != leader.ID() {
			t.Errorf("leader %x, %d proposals failed, want %x and none", s.Leader, s.Counts.FailedProposals, leader.ID())
		}
	})
}

// watched is longer than a leader is watched before its silence is a hint.
const watched = (learnBeats + 20) * 50 * time.Millisecond

// A leader that is cut off is replaced as soon as its silence is longer than it ever was, and
// after an election timeout by members that ignore silence, or have not watched it for long.
func TestALeaderThatIsCutOffIsReplacedBeforeAnElectionTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		ignore bool
		watch  time.Duration
		fast   bool
	}{
		"silence is a hint":    {false, watched, true},
		"it is ignored":        {true, watched, false},
		"it is not learnt yet": {false, watched / 2, false},
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
				if s := next.Status().Suspicions; (s.Last.Way == detector.LearntSilence) != tt.fast && s.Last.Way != detector.PreVote {
					t.Errorf("%s leads, and saw %+v", next.Name(), s)
				}
			})
		})
	}
}

// stall keeps n's loop from running for so long, as one that waits for a processor.
func (n *Node) stall(long time.Duration) {
	n.calls.Push(func(*raftLoop) { time.Sleep(long) })
	time.Sleep(long)
}

// A follower whose own loop is late hears nothing meanwhile, and suspects nobody.
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
			if s := f.Status().Suspicions; s.Hints[detector.LearntSilence] != 0 {
				t.Errorf("%s has suspected its leader: %+v", f.Name(), s)
			}
		}
	})
}

// What waits for the loop of a follower is heard before its leader is suspected of silence.
func TestWhatHasArrivedIsNoSilence(t *testing.T) {
	inCluster(t, 3, func(cfg *Config) { cfg.DisableLease = true }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		f := c.followers(leader)[0]
		time.Sleep(watched)
		c.net.CutOneWay(leader.Name(), f.Name())
		time.Sleep(190 * time.Millisecond)
		f.calls.do(func(l *raftLoop) {
			time.Sleep(80 * time.Millisecond) // not late enough to be a pause
			l.urgent <- &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(leader.ID()), To: new(f.ID()), Term: new(l.leadership.Term())}
			l.pollDetector()
			if s := l.detector.Stats(); s.Hints[detector.LearntSilence] != 0 {
				t.Errorf("%+v, want no suspicion of who was heard", s)
			}
		})
		c.net.HealAll()
	})
}

// Leaders' loops stall each minute for longer than promises last, as at a checkpoint: that costs
// an election for each member that has to learn of it, and nothing from then on.
func TestStallsOfTheLoopAreLearnt(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		term := c.leader().Term()
		for range often(30, 8) {
			time.Sleep(time.Minute)
			l := c.leader()
			l.stall(350 * time.Millisecond)
			c.put(c.leader(), "k", "v")
		}
		if got := c.leader().Term(); got > term+3 {
			t.Errorf("%d stalls, and the term is %d, want %d at most", often(30, 8), got, term+3)
		}
	})
}

// Where nothing goes wrong nobody is suspected, and status says after what silence it would be.
func TestNobodyIsSuspectedWithoutSilence(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for range often(60, 6) {
			c.put(leader, "k", "v")
			time.Sleep(time.Minute)
		}
		for _, n := range c.nodes {
			want := 5 * n.cfg.TickInterval
			if n == leader {
				want = 0
			}
			if s := n.Status().Suspicions; s.Limit != want || s.Hints != [detector.NumWays]uint64{} {
				t.Errorf("%s: %+v, want a limit of %v and no hint", n.Name(), s, want)
			}
		}
	})
}

// slowly has the log's disk take that long for each sync.
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

// An election waits for the disks of two members, and lasts for longer than any turn then.
// Who has voted does not stand while it may be won: each would outvote the one before, and
// nobody lead for seconds.
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

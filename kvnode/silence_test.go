package kvnode

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/detector"
)

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

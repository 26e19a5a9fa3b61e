package kvnode

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// image copies the data directory of a stopped member.
func (c *cluster) image(name string) (dir string) {
	c.t.Helper()
	dir = c.cfgs[name].DataDir
	if err := os.CopyFS(dir+".image", os.DirFS(dir)); err != nil {
		c.t.Fatal(err)
	}
	return dir + ".image"
}

// setBack stops a member and replaces its data directory by an image of it.
func (c *cluster) setBack(name, image string) {
	c.t.Helper()
	c.stop(name)
	dir := c.cfgs[name].DataDir
	if err := errors.Join(os.RemoveAll(dir), os.Rename(image, dir)); err != nil {
		c.t.Fatal(err)
	}
}

// wantLost waits until n has stopped because it has lost data. Its error must contain words and the remedy.
func wantLost(t *testing.T, n *Node, within time.Duration, words ...string) {
	t.Helper()
	select {
	case <-n.Done():
	case <-time.After(within):
		t.Fatalf("%s still runs %v after it was set back", n.Name(), within)
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

// A member whose data directory went back in time stops, while the leader to which it had acknowledged more still
// leads.
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

// A process that has acknowledged more since it first connected is accepted when it reconnects.
func TestAReconnectingProcessIsNotStale(t *testing.T) {
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

// Dropped messages are logged once. Answers to the previous process of a leader are not dropped, and not logged.
func TestDroppedMessagesAreLoggedOnce(t *testing.T) {
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

// wantNoStart starts a member that has lost data again. It must fail with the error with which it had stopped.
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

// A member that is proven to have lost acknowledged entries does not start again, also when the leader with the proof
// is gone: with its vote, a member that lacks an acknowledged write would be elected.
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

// A heartbeat with a commit index beyond the log is a proof as well, if a registered member has sent it.
func TestALossProvenByAHeartbeatIsKept(t *testing.T) {
	for _, member := range []bool{true, false} {
		t.Run(fmt.Sprintf("member=%t", member), func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				leader := c.leader()
				f := c.followers(leader)[0]
				from := leader.ID()
				if !member {
					from = 99 // an accepted peer that is not registered here yet
				}
				beyond := &raftpb.Message{
					Type: raftpb.MsgHeartbeat.Enum(), From: new(from), To: new(f.ID()), Term: new(leader.Term()), Commit: new(f.last.Load() + 100),
				}
				f.calls.Push(func(*raftLoop) { f.loop.step(beyond) })
				wantLost(t, f, time.Second, fmt.Sprint(beyond.GetCommit()))
				if member {
					c.wantNoStart(f.Name(), f.Err())
				} else {
					c.start(f.Name())
				}
			})
		})
	}
}

// wipe removes the data directories of members that have stopped.
func (c *cluster) wipe(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if err := os.RemoveAll(c.cfgs[name].DataDir); err != nil {
			c.t.Fatal(err)
		}
	}
}

// loseBeforeACheckpoint crashes all members before their first checkpoint, and wipes some. It returns the others.
func (c *cluster) loseBeforeACheckpoint(wiped []string) (whole []string) {
	c.t.Helper()
	for _, n := range c.nodes {
		<-n.Published()
	}
	c.put(c.leader(), "k", "v")
	time.Sleep(time.Second)
	for name, n := range c.nodes {
		if n.Store().Durable().Index > 0 {
			c.t.Fatalf("%s has a checkpoint, so this shows nothing", name)
		}
		c.crash(n)
		if !slices.Contains(wiped, name) {
			whole = append(whole, name)
		}
	}
	c.wipe(wiped...)
	return whole
}

// wantWiped checks that members have stopped before they took part, and that the log names each of them as wiped.
func (c *cluster) wantWiped(log *lines, wiped []string) {
	c.t.Helper()
	for _, name := range wiped {
		n := c.nodes[name]
		if err := n.Err(); !errors.Is(err, ErrLost) {
			c.t.Errorf("%s: Err() = %v, want ErrLost", name, err)
		}
		if log.count(fmt.Sprintf("%x (\\\"%s\\\") has been in the cluster with another data directory", n.ID(), name)) == 0 {
			c.t.Errorf("no line names %s as wiped: %s", name, log.String())
		}
		wantEnd(c.t, n)
		if !n.id.Waits() {
			c.t.Errorf("%s has taken part", name)
		}
		delete(c.nodes, name)
	}
}

// A refusal ends a member for good only if it names something that this process found missing at its start, and
// that it has not received since: otherwise the peer has mixed up two processes.
func TestARefusalIsKeptOnlyAsAProof(t *testing.T) {
	for name, more := range map[string]uint64{"more than it has": 1, "no more than it has": 0} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				leader := c.leader()
				f := c.followers(leader)[0]
				c.put(leader, "k", "v")
				time.Sleep(time.Second)
				peers{f}.Refused(leader.ID(), &transport.RefusedError{
					Peer: leader.ID(), Reason: transport.ReasonLostData, Text: "gone back", Term: f.Term(), Index: f.last.Load() + more,
				})
				wantLost(t, f, time.Second, "gone back")
				if more > 0 {
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

// All members stop before the first checkpoint, some are wiped, and all start, in either order. Only the logs have the
// members' instances then. A majority that was not wiped serves, and refuses the others by name. A minority waits, and
// no second cluster forms.
func TestWipedBeforeTheFirstCheckpoint(t *testing.T) {
	for i, test := range []struct {
		members int
		wiped   []string
		serves  bool
	}{
		{3, []string{"m3"}, true},
		{3, []string{"m2", "m3"}, false},
		{5, []string{"m4", "m5"}, true},
		{5, []string{"m3", "m4", "m5"}, false},
	} {
		if i == often(4, 2) {
			break
		}
		for _, first := range []bool{true, false} { // the wiped members start first
			t.Run(fmt.Sprintf("%v of %d, first %v", test.wiped, test.members, first), func(t *testing.T) {
				var log lines
				inCluster(t, test.members, func(cfg *Config) { cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
					whole := c.loseBeforeACheckpoint(test.wiped)
					order := [][]string{whole, test.wiped}
					if first {
						order = [][]string{test.wiped, whole}
					}
					for _, names := range order {
						for _, name := range names {
							c.start(name)
						}
						time.Sleep(20 * time.Second)
					}
					c.wantWiped(&log, test.wiped)
					if test.serves {
						if value, _ := c.get(c.leader(), ReadLease, "k"); value != "v" {
							t.Errorf("k = %q, want v", value)
						}
						return
					}
					for name, n := range c.nodes {
						if n.Leader() != 0 {
							t.Errorf("%s has leader %x, want none: the majority is gone", name, n.Leader())
						}
					}
				})
			})
		}
	}
}

// If one of the initial members is wiped before the first election, they still form their cluster: nothing was
// registered, so nothing is lost.
func TestWipedBeforeTheFirstElection(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			c.crash(n)
		}
		c.wipe("m1", "m2", "m3")
		c.start("m2")
		c.start("m3")
		time.Sleep(5 * time.Second)
		if n := len(c.nodes["m2"].Status().Awaited); n != 1 {
			t.Fatalf("m2 waits for %d others, want 1, as m3 has accepted it", n)
		}
		c.crash(c.nodes["m3"])
		c.wipe("m3")
		c.start("m3")
		c.start("m1")
		c.put(c.leader(), "k", "v")
		for name, n := range c.nodes {
			if err := n.Err(); err != nil {
				t.Errorf("%s: Err() = %v", name, err)
			}
			<-n.Published()
		}
	})
}

// A registration counts as soon as it is in a member's log, committed or not.
func TestRegistrationsInTheLogCount(t *testing.T) {
	for range 20 {
		if registrationInTheLogCounts(t) {
			return
		}
	}
	t.Error("in 20 runs each log had a commit index that covers the registration, so they show nothing")
}

// registrationInTheLogCounts reports whether the log had the registration beyond its commit index.
func registrationInTheLogCounts(t *testing.T) (shown bool) {
	t.Helper()
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			<-n.Published()
		}
		leader := c.leader()
		at, other := c.followers(leader)[0], c.followers(leader)[1]
		c.crash(leader, at, other)
		at = c.start(at.Name()) // alone, so that it learns of no commit
		if at.Store().Members().ByID[other.ID()].Instance != "" {
			return
		}
		shown = true
		hello := transport.Hello{From: other.ID(), Instance: other.id.Instance, ClusterVersion: store.ClusterVersionNewest, Log: other.atStart}
		if err := (peers{at}).Admit(hello); err != nil {
			t.Errorf("Admit() with the registered instance = %v", err)
		}
		hello.Instance = "another"
		if reason := reasonOf(peers{at}.Admit(hello)); reason != transport.ReasonLostData {
			t.Errorf("Admit() with another instance is refused for %q, want %q", reason, transport.ReasonLostData)
		}
	})
	return shown
}

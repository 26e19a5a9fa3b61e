package kvnode

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/internal/admission"
)

// lines counts what a node logs.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// String implements fmt.Stringer.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (l *lines) count(what string) int { return strings.Count(l.String(), what) }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// restart crashes a member, removes its directory if told so, and starts it with
// another configuration.
func (c *cluster) restart(name string, wipe bool, amend func(*Config)) *Node {
	c.t.Helper()
	if n := c.nodes[name]; n != nil {
		c.crash(n)
	}
	cfg := c.cfgs[name]
	if wipe {
		if err := os.RemoveAll(cfg.DataDir); err != nil {
			c.t.Fatal(err)
		}
	}
	amend(&cfg)
	c.cfgs[name] = cfg
	return c.start(name)
}

// Somebody who founds another cluster than all others ends, says why and what to
// do; the others go on without noticing.
func TestAFounderOfAnotherClusterEnds(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.crash(c.nodes["m3"])
		var log lines
		stray := c.restart("m3", true, func(c *Config) { c.Token, c.Logger = "typo", log.logger() })
		began := time.Now()
		select {
		case <-stray.Done():
		case <-time.After(time.Minute):
			t.Fatalf("the stray member still runs after a minute")
		}
		delete(c.nodes, "m3")
		if took := time.Since(began); took < admission.RefusalPatience {
			t.Errorf("it has ended after %v, want %v at least: the others may be about to be replaced", took, admission.RefusalPatience)
		}
		err := stray.Err()
		if !errors.Is(err, ErrForeignCluster) {
			t.Fatalf("Err() = %v, want ErrForeignCluster", err)
		}
		for _, want := range []string{"Config.Token", "this is cluster ", "remove " + stray.cfg.DataDir, "Config.Existing"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("Err() = %v, want ...%s...", err, want)
			}
		}
		if got := log.count("a peer is of another cluster"); got != 2 {
			t.Errorf("it has logged %d refusals, want one for each peer: %s", got, log.String())
		}
		c.put(leader, "k", "v")
	})
}

// A member that takes part does not end because others refuse it, be it all of
// them: it says so, and not all the time.
func TestAMemberThatTakesPartOutlivesStrays(t *testing.T) {
	var log lines
	inCluster(t, 3, func(c *Config) { c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		c.leader()
		time.Sleep(time.Second)
		for _, name := range []string{"m2", "m3"} {
			c.restart(name, true, func(c *Config) { c.Token, c.Logger = "other", nil })
		}
		time.Sleep(100 * time.Second)
		if n := c.nodes["m1"]; n.life.IsStopping() {
			t.Errorf("the member has ended: %v", n.Err())
		}
		if got := log.count(`a peer is of another cluster" member=m1`); got < 2 || got > 8 {
			t.Errorf("100s of two strays made %d lines, want one per stray and half minute: %s", got, log.String())
		}
	})
}

// One stray is not enough to end a founder that others may yet join.
func TestAFounderOutlivesOneStray(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, name := range []string{"m1", "m2", "m3"} {
			c.crash(c.nodes[name])
			if err := os.RemoveAll(c.cfgs[name].DataDir); err != nil {
				t.Fatal(err)
			}
		}
		c.start("m1")
		c.restart("m3", false, func(c *Config) { c.Token = "other" })
		time.Sleep(time.Minute)
		if n := c.nodes["m1"]; n.life.IsStopping() {
			t.Fatalf("the founder has ended: %v", n.Err())
		}
		c.start("m2")
		c.restart("m3", true, func(c *Config) { c.Token = "" })
		c.put(c.leader(), "k", "v")
	})
}

// Whoever waits to be let in by one cluster cannot be told to join another: it is
// said at once, and what to do about it.
func TestADirectoryThatNeverJoinedIsCompared(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		c.crash(c.nodes["m3"])
		if err := os.RemoveAll(c.cfgs["m3"].DataDir); err != nil {
			t.Fatal(err)
		}
		// A restored cluster has an ID that the flags do not give away.
		right := c.cfgs["m3"]
		wrong := right.WithDefaults()
		id := wrong.owner().Found()
		id.ClusterID++
		id.Begin(wrong.owner(), "x")
		if err := errors.Join(os.MkdirAll(wrong.DataDir, 0o700), wrong.dir().Write(&id)); err != nil {
			t.Fatal(err)
		}
		right.Existing = true
		c.cfgs["m3"] = right
		_, err := c.tryStart("m3")
		if !errors.Is(err, ErrForeignCluster) || !strings.Contains(err.Error(), "remove the data directory") {
			t.Fatalf("Start() with the directory of another cluster = %v, want ErrForeignCluster and a remedy", err)
		}
		// As told: another directory, and added anew.
		old := wrong.owner().Found().MemberID
		if err := leader.RemoveMember(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		if _, err := leader.AddMember(t.Context(), peerURLs("m3"), false); err != nil {
			t.Fatal(err)
		}
		back := c.restart("m3", true, func(*Config) {})
		c.applied(back, leader)
	})
}

// One member of another cluster says nothing of those that do not answer: whoever
// waits goes on waiting.
func TestOneStrayDoesNotTurnAwayWhoeverWaits(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, name := range []string{"m1", "m2", "m3"} {
			c.crash(c.nodes[name])
		}
		for _, name := range []string{"m1", "m3"} {
			if err := os.RemoveAll(c.cfgs[name].DataDir); err != nil {
				t.Fatal(err)
			}
		}
		c.start("m1")
		c.crash(c.nodes["m1"])
		stray := c.restart("m3", false, func(c *Config) { c.Cluster = c.Cluster[2:] })
		if _, err := stray.Read(t.Context(), ReadLease); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		c.restart("m1", false, func(c *Config) { c.Existing = true })
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Start() took %v, want an election timeout at most", took)
		}
	})
}

// Joining with nobody to ask is an error, not a cluster without a name.
func TestJoiningNeedsSomebodyToAsk(t *testing.T) {
	cfg := aloneConfig(t)
	cfg.Existing = true
	if id, _, err := openIdentity(&cfg); err == nil {
		t.Errorf("openIdentity() of a joiner without others = %+v, want an error", id)
	}
}

// Who is missing is said by name and URL, in the status and in the log.
func TestAFounderSaysWhomItWaitsFor(t *testing.T) {
	var log lines
	inCluster(t, 3, func(c *Config) { c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		c.leader()
		for _, name := range []string{"m1", "m2", "m3"} {
			c.crash(c.nodes[name])
			if err := os.RemoveAll(c.cfgs[name].DataDir); err != nil {
				t.Fatal(err)
			}
		}
		const line = `waits to be let in by others before it takes part" member=m1 component=kvnode missing=1 of="[m3 (http://m3:2380)]"`
		before := log.count(line)
		c.start("m1")
		c.start("m2")
		time.Sleep(40 * time.Second)
		st := c.nodes["m1"].Status()
		if len(st.Awaited) != 1 || st.Awaited[0] != "m3 (http://m3:2380)" {
			t.Errorf("Status().Awaited = %q, want m3 with its URL", st.Awaited)
		}
		for _, p := range st.Peers {
			if st.Names[p.ID] == "" {
				t.Errorf("Status().Names = %v, want the name of %x, too", st.Names, p.ID)
			}
		}
		if got := log.count(line) - before; got != 2 {
			t.Errorf("%d lines of m1 name m3 in 40s, want one when m2 lets it in and one 30s later: %s", got, log.String())
		}
		c.start("m3")
		c.leader()
		if got := c.nodes["m1"].Awaited(); len(got) != 0 {
			t.Errorf("Awaited() of a member that takes part = %q, want nobody", got)
		}
	})
}

package kvnode

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// The member list has the instance of each member that has started, and no other.
func TestTheMemberListHasInstances(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		<-n.Published()
		if _, err := n.AddMember(t.Context(), peerURLs("m2"), true); err != nil {
			t.Fatal(err)
		}
		r, err := transport.FetchMemberList(t.Context(), c.net.Dialer("joiner"), "m1:2380")
		if err != nil {
			t.Fatal(err)
		}
		var members []store.Member
		if err := json.Unmarshal(r.Members, &members); err != nil || len(members) != 2 {
			t.Fatalf("the roster is %s, %v, want two members", r.Members, err)
		}
		for _, m := range members {
			want := ""
			if m.ID == n.ID() {
				want = n.id.Instance
			}
			if len(m.ClientURLs) > 0 {
				t.Errorf("of member %x the roster says client URLs %q, want none", m.ID, m.ClientURLs)
			}
			if m.Instance != want {
				t.Errorf("of member %x the roster says instance %q, want %q", m.ID, m.Instance, want)
			}
		}
	})
}

// A member that waits to be admitted does not vote: it may have voted, and promised, with a data directory that was
// lost.
func TestAWaitingMemberDoesNotVote(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, name := range []string{"m1", "m2", "m3"} {
			c.crash(c.nodes[name])
		}
		if err := os.RemoveAll(c.cfgs["m1"].DataDir); err != nil {
			t.Fatal(err)
		}
		n := c.start("m1")
		time.Sleep(5 * time.Second)
		var before, after uint64
		n.call(func() { before = n.loop.raw.BasicStatus().GetTerm() })
		vote := &raftpb.Message{
			Type: raftpb.MsgVote.Enum(), From: new(n.id.Members[1].ID), To: new(n.ID()), Term: new(before + 1),
			LogTerm: new(before + 1), Index: new(uint64(100)),
		}
		n.call(func() { n.loop.step(vote) })
		n.call(func() { after = n.loop.raw.BasicStatus().GetTerm() })
		if after != before {
			t.Errorf("a candidate has moved it from term %d to %d, want that it ignores the candidate", before, after)
		}
	})
}

// An initial member campaigns when enough others have admitted it, and does not wait for its next tick.
func TestAnInitialMemberCampaignsWhenItIsAdmitted(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, name := range []string{"m1", "m2", "m3"} {
			c.crash(c.nodes[name])
			if err := os.RemoveAll(c.cfgs[name].DataDir); err != nil {
				t.Fatal(err)
			}
		}
		waiting := []*Node{c.start("m1"), c.start("m2")}
		time.Sleep(time.Second + time.Millisecond) // they have just ticked
		c.start("m3")
		time.Sleep(10 * time.Millisecond)
		for _, n := range waiting {
			var role raft.StateType
			n.call(func() { role = n.loop.raw.BasicStatus().RaftState })
			bound := n.Lease().Info().Promise.Remaining > 0 // to a leader that the others have elected before it was admitted
			if len(n.Status().Awaited) > 0 || role == raft.StateFollower && n.Leader() == 0 && !bound {
				t.Errorf("10ms after all have started, %s awaits %q, is %v and has no leader, want it admitted and campaigning", n.Name(), n.Status().Awaited, role)
			}
		}
	})
}

// lines records and counts log lines.
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

// restart crashes a member, removes its data directory if wipe is set, and starts it with a changed configuration.
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

// A member that founds another cluster than all others stops. Its error gives the reason and the remedy. The others
// go on.
func TestAnInitialMemberOfAnotherClusterEnds(t *testing.T) {
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

// A member that takes part does not stop although all others refuse it. It logs that, with a limit.
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

// An initial member does not stop because one member belongs to another cluster: the rest may still join it.
func TestAnInitialMemberOutlivesOneStray(t *testing.T) {
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
			t.Fatalf("the initial member has ended: %v", n.Err())
		}
		c.start("m2")
		c.restart("m3", true, func(c *Config) { c.Token = "" })
		c.put(c.leader(), "k", "v")
	})
}

// A member that waits to be admitted to one cluster cannot join another. Start fails at once, with the remedy.
func TestADirectoryThatNeverJoinedIsCompared(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		c.crash(c.nodes["m3"])
		if err := os.RemoveAll(c.cfgs["m3"].DataDir); err != nil {
			t.Fatal(err)
		}
		// The ID of a restored cluster does not follow from the flags.
		right := c.cfgs["m3"]
		wrong := right.WithDefaults()
		id := wrong.owner().FoundingIdentity()
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
		// The remedy: remove the directory, and add the member anew.
		old := wrong.owner().FoundingIdentity().MemberID
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

// The status and the log name the missing members with their URLs.
func TestAnInitialMemberNamesTheMembersItWaitsFor(t *testing.T) {
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
		if got := c.nodes["m1"].Status().Awaited; len(got) != 0 {
			t.Errorf("Awaited() of a member that takes part = %q, want none", got)
		}
	})
}

// A new member needs a printable name. An existing one keeps the name that it has.
func TestNamesOfNewMembers(t *testing.T) {
	named := func(name string) Config {
		cfg := aloneConfig(t)
		cfg.Name, cfg.Cluster[0].Name = name, name
		return cfg
	}
	for _, name := range []string{"\x1b]0;title\a", "a\nb", "a\u202eb", "a\xff", strings.Repeat("x", transport.MaxNameBytes+1)} {
		cfg := named(name)
		if err := cfg.CheckDataDir(); err == nil || !strings.Contains(err.Error(), Shown(name)+" (Config.Name)") {
			t.Errorf("CheckDataDir() for a new member called %q = %v, want it refused by its name", name, err)
		}
		if _, err := openIdentity(&cfg); err == nil {
			t.Errorf("a directory is made for a member called %q, want it refused", name)
		}
		if _, err := os.Stat(filepath.Join(cfg.DataDir, memberdir.IdentityFile)); err == nil {
			t.Errorf("a refused start with the name %q has left %s", name, memberdir.IdentityFile)
		}
		id := cfg.owner().FoundingIdentity() // by a version that did not ask
		id.Begin(cfg.owner(), "x")
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := cfg.dir().Write(&id); err != nil {
			t.Fatal(err)
		}
		if err := cfg.CheckDataDir(); err != nil && strings.Contains(err.Error(), "Config.Name") {
			t.Errorf("CheckDataDir() for an old member called %q = %v, want it kept", name, err)
		}
	}
	cfg := named(strings.Repeat("é", transport.MaxNameBytes/2))
	if err := cfg.CheckDataDir(); err != nil {
		t.Errorf("CheckDataDir() for a name of %d bytes = %v, want it taken", len(cfg.Name), err)
	}
}

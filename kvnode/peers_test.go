package kvnode

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// certified gives each member a certificate for its host and for more hosts. The authority is created on first use,
// inside the bubble, so that its validity is in the bubble's time.
func certified(t *testing.T, more ...func(host string) string) func(*Config) {
	t.Helper()
	dir := t.TempDir()
	var ca *tlstest.Authority
	return func(c *Config) {
		if ca == nil {
			ca = tlstest.New(t, "ca")
		}
		side := tlsconf.Config{Peers: true, TrustedCAFile: tlstest.Write(t, dir, "ca", ca.PEM)}
		hosts := []string{c.Name}
		for _, f := range more {
			hosts = append(hosts, f(c.Name))
		}
		side.CertFile, side.KeyFile = ca.Issue(hosts).Write(dir, c.Name)
		var err error
		if c.PeerTLS, err = tlsconf.New(side); err != nil {
			t.Fatal(err)
		}
	}
}

// reasonOf returns the reason of a refusal, "" if err is none.
func reasonOf(err error) string {
	if refusal, ok := errors.AsType[*transport.Refusal](err); ok {
		return refusal.Reason
	}
	return ""
}

// isConnected reports whether n is connected to a member.
func isConnected(n *Node, id uint64) bool { return connected(n.links)[id] }

// A member ends because of what a peer says only if that peer is registered. Without certificates the peer must also be
// where the registry, or the configuration, has it. With certificates a peer that has moved counts: its certificate
// proves its ID, and an old image of a disk must not go on because the members that know about it have moved since.
func TestOnlyRegisteredMembersEndAMember(t *testing.T) {
	for name, amend := range map[string]func(*Config){"plain text": nil, "mutual TLS": certified(t)} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, amend, func(t *testing.T, c *cluster) {
				n := c.leader()
				moved, other := c.followers(n)[0], c.followers(n)[1]
				time.Sleep(time.Second)
				err := errors.Join(
					peers{n}.Admit(transport.Hello{From: 99, Instance: "x", PeerURLs: "http://m2:1", ClusterVersion: store.ClusterVersionNewest}),
					peers{n}.Admit(transport.Hello{From: moved.ID(), Instance: moved.id.Instance, PeerURLs: "http://elsewhere:1", ClusterVersion: store.ClusterVersionNewest, Log: moved.atStart}),
				)
				if err != nil {
					t.Fatal(err)
				}
				ignored, believed := []uint64{98, 99, moved.ID()}, other.ID()
				if amend != nil {
					ignored, believed = ignored[:2], moved.ID()
				}
				for _, id := range ignored {
					for _, reason := range []string{transport.ReasonLostData, transport.ReasonRemoved} {
						peers{n}.Refused(id, &transport.RefusedError{Peer: id, Reason: reason})
					}
				}
				time.Sleep(10 * time.Second)
				if err := n.Err(); err != nil {
					t.Fatalf("refused by %x: Err() = %v, want nil", ignored, err)
				}
				peers{n}.Refused(believed, &transport.RefusedError{Peer: believed, Reason: transport.ReasonLostData})
				if err := n.Err(); !errors.Is(err, ErrLost) {
					t.Errorf("refused by a registered member: Err() = %v, want ErrLost", err)
				}
				wantEnd(t, n)
				delete(c.nodes, n.Name())
			})
		})
	}
}

// An unregistered peer that has disconnected leaves no record of its log behind, since any program can claim many IDs.
// The record of a registered member stays: its next process is compared with it.
func TestOnlyUnregisteredPeersAreForgotten(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		time.Sleep(time.Second)
		m2 := c.followers(n)[0]
		admit := func(id uint64, log transport.DiskState) error {
			h := transport.Hello{From: id, Instance: "x", PeerURLs: "http://" + m2.Name() + ":2380", ClusterVersion: store.ClusterVersionNewest, Log: log}
			if id == m2.ID() {
				h.Instance = m2.id.Instance
			}
			return peers{n}.Admit(h)
		}
		const unregistered = 99
		newer, older := transport.DiskState{Boot: "a", Term: 50, Commit: 100, Last: 100}, transport.DiskState{Boot: "b", Term: 1}
		for id, want := range map[uint64]string{unregistered: "", m2.ID(): transport.ReasonLostData} {
			if err := admit(id, newer); err != nil {
				t.Fatal(err)
			}
			if err := admit(id, older); reasonOf(err) != transport.ReasonLostData {
				t.Errorf("Admit() of %x with an older log = %v, want %s", id, err, transport.ReasonLostData)
			}
			peers{n}.Gone(id)
			if err := admit(id, older); reasonOf(err) != want || (err == nil) != (want == "") {
				t.Errorf("Admit() of %x with an older log after Gone() = %v, want a refusal for %q", id, err, want)
			}
		}
	})
}

// Each member logs once that a member was started with another peer URL than the registry has, with the remedy.
func TestAMovedMemberIsNamed(t *testing.T) {
	var log lines
	inCluster(t, 3, func(cfg *Config) { cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		c.leader()
		time.Sleep(10 * time.Second)
		c.stop("m3")
		const what = "a member advertises other peer URLs"
		if got := log.count(what); got != 0 {
			t.Fatalf("%d lines before it has moved, want none", got)
		}
		cfg := c.cfgs["m3"]
		cfg.Cluster = append([]Member(nil), cfg.Cluster...)
		cfg.Cluster[2].PeerURLs = []string{"http://m3.elsewhere:2380"}
		c.cfgs["m3"] = cfg
		moved := c.start("m3")
		time.Sleep(10 * time.Second)
		if got := log.count(what); got != 3 {
			t.Errorf("%d lines, want one of each member", got)
		}
		for _, word := range []string{"http://m3:2380", "http://m3.elsewhere:2380", "member update"} {
			if log.count(word) == 0 {
				t.Errorf("nothing names %q: %s", word, log.String())
			}
		}
		if err := c.leader().UpdateMember(t.Context(), moved.ID(), []string{"http://m3.elsewhere:2380"}); err != nil {
			t.Fatal(err)
		}
	})
}

// Log lines have a member's name, and the ID that other tools print.
func TestLogsNameMembers(t *testing.T) {
	var log lines
	inCluster(t, 3, func(c *Config) { c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		named := fmt.Sprintf("%s (%x)", leader.Name(), leader.ID())
		if want := fmt.Sprintf("%q", named); log.count("leader="+want) == 0 || log.count("was=none") == 0 {
			t.Errorf("no line says leader=%s, or that there was none: %s", want, log.String())
		}
		c.crash(leader)
		time.Sleep(10 * time.Second)
		if want := fmt.Sprintf("peer=%q", named); log.count(`cannot connect to peer"`) == 0 || log.count(want) == 0 {
			t.Errorf("no line says %s: %s", want, log.String())
		}
	})
}

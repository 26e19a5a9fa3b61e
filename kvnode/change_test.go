package kvnode

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// changeEntry is a change of one member, with any context.
func changeEntry(typ raftpb.ConfChangeType, id uint64, context string) *raftpb.Entry {
	data, err := proto.Marshal(&raftpb.ConfChange{Type: typ.Enum(), NodeId: new(id), Context: []byte(context)})
	if err != nil {
		panic(err)
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Data: data}
}

// changesEntry is a change of the second kind, with any context.
func changesEntry(context string, changes ...*raftpb.ConfChangeSingle) *raftpb.Entry {
	data, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: changes, Context: []byte(context)})
	if err != nil {
		panic(err)
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: data}
}

// malformed are configuration changes that no member makes, and that raft takes.
func malformed() map[string]*raftpb.Entry {
	one := &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(77))}
	registered, err := json.Marshal(membership.ChangeContext{Member: store.Member{ID: 77, PeerURLs: peerURLs("x")}})
	if err != nil {
		panic(err)
	}
	return map[string]*raftpb.Entry{
		"no data":                                  {Type: raftpb.EntryConfChange.Enum()},
		"no context":                               changeEntry(raftpb.ConfChangeAddNode, 77, ""),
		"a context that is not JSON":               changeEntry(raftpb.ConfChangeAddNode, 77, "not JSON"),
		"a context of another type":                changeEntry(raftpb.ConfChangeRemoveNode, 77, `{"member": 7}`),
		"a cluster version in a member's change":   changeEntry(raftpb.ConfChangeAddNode, 77, `{"format": 1}`),
		"a promotion that is an update":            changeEntry(raftpb.ConfChangeUpdateNode, 77, `{"promote": true}`),
		"a promotion that is a learner":            changeEntry(raftpb.ConfChangeAddLearnerNode, 77, `{"promote": true}`),
		"the second kind, no context":              changesEntry("", one),
		"the second kind, not JSON":                changesEntry("not JSON", one),
		"the second kind, a member":                changesEntry(string(registered), one),
		"the second kind, no such cluster version": changesEntry(`{"format": -1}`, one),
	}
}

// wellAfter checks that all members go on and agree, and that members can be added and
// removed.
func (c *cluster) wellAfter(what string, leader *Node) {
	c.t.Helper()
	c.put(leader, "k", what)
	m, err := leader.AddMember(c.t.Context(), peerURLs("m9"), true)
	if err != nil {
		c.t.Fatalf("AddMember() after %s = %v", what, err)
	}
	if err := leader.RemoveMember(c.t.Context(), m.ID); err != nil {
		c.t.Fatalf("RemoveMember() after %s = %v", what, err)
	}
	for _, n := range c.nodes {
		c.applied(n, leader)
		if err := n.Err(); err != nil {
			c.t.Fatalf("%s ends after %s: %v", n.Name(), what, err)
		}
		if got, want := n.Store().Members(), leader.Store().Members(); !reflect.DeepEqual(got, want) {
			c.t.Errorf("members on %s after %s: %v, want %v", n.Name(), what, got, want)
		}
	}
}

// What one member forwards, faulty or hostile, ends none of the others.
func TestMalformedChangesAreNotTakenFromPeers(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.raised(leader)
		sender := c.followers(leader)[0]
		entries := malformed()
		entries["a later cluster version"] = changesEntry(`{"format": 999}`)
		entries["nobody"] = changeEntry(raftpb.ConfChangeAddNode, 0, `{}`)
		refused := uint64(0)
		for what, e := range entries {
			before := leader.Store().Applied()
			sender.links.Send([]*raftpb.Message{{
				Type: raftpb.MsgProp.Enum(), From: new(sender.ID()), To: new(leader.ID()), Entries: []*raftpb.Entry{e},
			}})
			time.Sleep(100 * time.Millisecond)
			if refused++; leader.Store().Applied() != before || leader.Status().Counts.Malformed != refused {
				t.Errorf("a change with %s: applied index %d, %d refused, want %d and %d", what, leader.Store().Applied(), leader.Status().Counts.Malformed, before, refused)
			}
		}
		c.wellAfter("malformed proposals", leader)
	})
}

// A malformed change in the log changes no member, on all members and after a restart.
func TestMalformedChangesInTheLogChangeNothing(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.raised(leader)
		before := leader.Store().Members()
		for what, e := range malformed() {
			leader.call(func() {
				if err := leader.loop.raw.Step(propMessage(leader.ID(), e)); err != nil {
					t.Errorf("Step(a change with %s) = %v", what, err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		c.wellAfter("malformed entries", leader)
		for id := range leader.Store().Members().ByID {
			if _, ok := before.ByID[id]; !ok {
				t.Errorf("member %x was added by a malformed change", id)
			}
		}
		for name, n := range c.nodes {
			if got, want := n.Status().Counts.Malformed, uint64(len(malformed())); got != want {
				t.Errorf("Malformed on %s = %d, want %d", name, got, want)
			}
		}
		for name := range c.cfgs {
			c.crash(c.nodes[name])
		}
		for name := range c.cfgs {
			c.start(name)
		}
		c.wellAfter("a restart", c.leader())
	})
}

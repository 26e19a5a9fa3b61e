package leaderlease

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// What raft hands out as committed is, whether or not the Ready has a HardState, up to
// the last entry; and the commit index never goes back.
func TestCommittedEntriesMoveTheCommitIndex(t *testing.T) {
	p := newPuppet(t)
	for _, c := range []struct{ from, to, want uint64 }{{2, 2, 2}, {3, 6, 6}, {7, 8, 8}} {
		var es []*raftpb.Entry
		for i := c.from; i <= c.to; i++ {
			es = append(es, p.entry(i))
		}
		p.Ready(raft.Ready{CommittedEntries: es})
		if got := p.commit.Load(); got != c.want {
			t.Errorf("commit index after entries %d to %d = %d, want %d", c.from, c.to, got, c.want)
		}
	}
}

// A change that was applied without ApplyConfState is said once, however much is
// applied after it, and again when another is missed once that is mended.
func TestAMissedChangeIsSaidOnce(t *testing.T) {
	var c confWatch
	c.open = []uint64{5, 9}
	for _, step := range []struct {
		applied uint64
		said    bool
	}{{4, false}, {5, true}, {6, false}, {8, false}} {
		before := c.wrong()
		c.applied(step.applied)
		if err := c.wrong(); (before == nil && err != nil) != step.said {
			t.Errorf("applied(%d): wrong() = %v, was %v, want it said: %v", step.applied, err, before, step.said)
		}
	}
	if use, broken := c.toldAt(5); !use || broken != "" {
		t.Fatalf("toldAt(5) = %v, %q, want it used", use, broken)
	}
	if c.applied(8); c.wrong() != nil {
		t.Errorf("wrong() once 5 is told and 8 applied = %v, want nil", c.wrong())
	}
	if c.applied(9); c.wrong() == nil {
		t.Error("wrong() when 9 is applied without being told = nil, want an error")
	}
}

// A clock that cannot be disrupted has had no disruption.
func TestAClockWithoutDisruptionsHasHadNone(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.Clock = &shakyClock{Clock: c.Clock} })
	if n := p.disruptions(); n != 0 {
		t.Errorf("disruptions() = %d, want 0", n)
	}
}

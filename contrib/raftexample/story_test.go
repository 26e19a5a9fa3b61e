package raftexample

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// holder waits until a member reads under the lease.
func (c *cluster) holder(among ...*member) (holder *member) {
	c.t.Helper()
	c.until("a member reads under the lease", func() bool {
		for _, m := range among {
			before := m.paths["lease"]
			c.ask(m, http.MethodGet, "nothing", "")
			if m.paths["lease"] > before {
				holder = m
				return true
			}
		}
		return false
	})
	return holder
}

// read waits for an answer of m, and reports whether it has key. A refused read is
// tried again.
func (c *cluster) read(m *member, key string) (has bool) {
	c.t.Helper()
	c.until(fmt.Sprintf("member %d reads %s", m.id, key), func() bool {
		a := c.ask(m, http.MethodGet, key, "")
		has = a.code == http.StatusOK
		return has || a.code == http.StatusNotFound
	})
	return has
}

// write puts key through one member until another one shows it. raftexample silently drops
// writes while there is no leader.
func (c *cluster) write(key string, through, shown *member) {
	c.t.Helper()
	tries := 0
	c.until(key+" is written", func() bool {
		if tries%50 == 0 {
			c.ask(through, http.MethodPut, key, "value of "+key)
		}
		tries++
		return c.read(shown, key)
	})
}

// everybodyHas checks that a key which one read has shown is in every later read.
func (c *cluster) everybodyHas(key string, among ...*member) {
	c.t.Helper()
	for _, m := range among {
		if !c.read(m, key) {
			c.t.Errorf("member %d does not have %s, which was read before: a stale read", m.id, key)
		}
	}
}

func readThroughThree(t *testing.T, program string) {
	c := newCluster(t, program)
	all := c.members
	c.start(all...)
	leader := c.holder(all...)
	for i := range 20 {
		key := fmt.Sprintf("first%d", i)
		c.write(key, all[i%3], all[(i+1)%3])
		c.everybodyHas(key, all...)
	}
	forwarded := 0
	for _, m := range all {
		forwarded += m.paths["forwarded"]
		t.Logf("member %d: reads %v", m.id, m.paths)
	}
	if forwarded == 0 {
		t.Error("no follower has read by asking the leader")
	}
	// On a busy machine a heartbeat may be late, and a read takes a round.
	c.until("20 reads under the lease at the leader", func() bool {
		c.everybodyHas("first19", leader)
		return leader.paths["lease"] >= 20
	})

	c.kill(leader)
	var left []*member
	for _, m := range all {
		if m != leader {
			left = append(left, m)
		}
	}
	successor := c.holder(left...)
	t.Logf("member %d has the lease after member %d", successor.id, leader.id)
	c.everybodyHas("first0", left...)
	c.everybodyHas("first19", left...)
	c.write("second", left[0], left[1])
	c.everybodyHas("second", left...)

	c.start(leader) // with the log that it has
	c.everybodyHas("second", leader)
	c.everybodyHas("first19", all...)
}

// readSlowStore reads at one member right after another has shown what was written.
func readSlowStore(t *testing.T, program string) {
	c := newCluster(t, program)
	all := c.members
	c.start(all...)
	leader := c.holder(all...)
	for i := range 20 {
		key := fmt.Sprintf("key%d", i)
		c.write(key, leader, leader)
		c.everybodyHas(key, all...)
	}
}

// readSnapshot reads at a member that was away for longer than the others keep their
// logs. Nothing is written after its return.
func readSnapshot(t *testing.T, program string) {
	c := newCluster(t, program)
	all := c.members
	c.start(all...)
	leader := c.holder(all...)
	away, third := all[leader.id%3], all[(leader.id+1)%3]
	c.write("early", leader, away)
	c.kill(away)
	for i := range 10 {
		c.write(fmt.Sprintf("late%d", i), leader, third)
	}
	c.start(away)
	c.everybodyHas("late9", away)
	c.everybodyHas("early", away)
	text, err := os.ReadFile(away.log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "finished publishing snapshot") {
		t.Errorf("member %d was not sent a snapshot:\n%s", away.id, c.tail(away))
	}
}

// refuseAlone leaves one member of three, which has the lease: it answers until that
// has ended, and no longer, since the others might have another leader.
func refuseAlone(t *testing.T, program string) {
	c := newCluster(t, program)
	all := c.members
	c.start(all...)
	alone := c.holder(all...)
	c.write("key", alone, alone)
	for _, m := range all {
		if m != alone {
			c.kill(m)
		}
	}
	refused := func() bool { return c.ask(alone, http.MethodGet, "key", "").code == http.StatusServiceUnavailable }
	c.until("a member alone refuses", refused)
	for range 10 {
		if !refused() {
			t.Error("a member alone reads after it has refused")
		}
	}

	c = newCluster(t, program)
	fresh := c.members[0]
	c.start(fresh)
	c.until("a member that never saw another answers", func() bool {
		a := c.ask(fresh, http.MethodGet, "nothing", "")
		if a.code == http.StatusOK || a.code == http.StatusNotFound {
			t.Fatalf("a member alone answers %d: %s", a.code, a.body)
		}
		return a.code == http.StatusServiceUnavailable
	})
}

// answerAlone is what refuseAlone keeps from happening.
func answerAlone(t *testing.T, program string) {
	c := newCluster(t, program)
	alone := c.members[0]
	c.start(alone)
	c.until("a member alone answers", func() bool {
		return c.ask(alone, http.MethodGet, "nothing", "").code == http.StatusNotFound
	})
}

package rules

import (
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/leaderlease/go/leaderlease/fence"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// Tokens rise strictly from holder to holder, over elections, transfers and
// restarts, and never fall while one node holds on.
func TestTokensRiseOverFailOvers(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 7)
	c := leasetest.New(leasetest.Options{})
	var newest fence.Token
	holders := 0
	take := func() {
		t.Helper()
		n := c.Leader()
		for range 3 {
			n.Write(1, uint64(c.Now())+1, func(uint64) {})
			c.Run(50 * time.Millisecond)
			token, err := n.Lease().Token()
			if err != nil || !newest.Less(token) {
				t.Fatalf("Token() of node %d = %v, %v, want more than %v", n.ID, token, err, newest)
			}
			newest = token
		}
		holders++
	}
	lead := func() bool {
		return c.RunUntil(time.Minute, func() bool { n := c.Leader(); return n != nil && n.Valid() })
	}
	for round := range 12 {
		if !lead() {
			t.Fatalf("round %d: no leader with a lease", round)
		}
		take()
		old := c.Leader()
		switch round % 3 {
		case 0:
			old.Transfer(old.ID%3 + 1)
			c.Run(time.Second)
		case 1:
			old.Crash(0)
			c.Run(5 * time.Second)
			old.Restart()
		default:
			c.Net.Split([]uint64{old.ID}, []uint64{old.ID%3 + 1, (old.ID+1)%3 + 1})
			c.Run(10 * time.Second)
			if token, err := old.Lease().Token(); err == nil {
				t.Fatalf("Token() of a leader that was cut off = %v, want none", token)
			}
			c.Net.Heal()
		}
	}
	if holders != 12 {
		t.Errorf("%d holders took tokens, want 12", holders)
	}
}

// Work begun under one node's lease has ended before another node has one.
func TestWorkEndsBeforeTheNextHolderBegins(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 3)
	c := leasetest.New(leasetest.Options{})
	if !c.Elect(1) {
		t.Fatal("Elect(1) = false")
	}
	ctx, stop, err := c.Node(1).Lease().Context(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c.Node(1).Transfer(2)
	gained := false
	c.OnLeader = func(n *leasetest.Node, _ uint64) {
		gained = true
		if ctx.Err() == nil {
			t.Errorf("node %d leads while work of node 1 goes on", n.ID)
		}
	}
	if !c.RunUntil(time.Minute, func() bool { return c.Node(2).Valid() }) || !gained {
		t.Fatal("leadership was not transferred")
	}
	events, stopWatch := c.Node(1).Lease().Watch()
	defer stopWatch()
	if e := <-events; e.Held {
		t.Errorf("Watch() of node 1 = %+v, want the lease lost", e)
	}
}

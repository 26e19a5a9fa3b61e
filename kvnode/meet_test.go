package kvnode

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/transport"
)

// A member whom the last checkpoint has is let in though peers.json cannot be written.
// One that it has not is not: a crash would forget who that was.
func TestTheCheckpointRemembersToo(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		other := c.followers(n)[0]
		time.Sleep(5 * time.Second)
		n.met.mu.Lock()
		delete(n.met.mu.instances, other.ID())
		n.met.mu.Unlock()
		if err := os.Mkdir(filepath.Join(n.cfg.DataDir, acquaintancesFile+".tmp"), 0o700); err != nil {
			t.Fatal(err)
		}
		hello := transport.Hello{From: other.ID(), Instance: other.id.Instance, Format: other.cfg.newestFormat, Log: other.atStart}
		if err := (peers{n}).Admit(hello); err == nil {
			t.Error("Admit() of a member that nothing durable has = nil, want an error")
		}
		if err := n.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := (peers{n}).Admit(hello); err != nil {
			t.Errorf("Admit() of a member that the checkpoint has = %v", err)
		}
	})
}

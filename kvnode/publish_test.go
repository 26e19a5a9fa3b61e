package kvnode

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// A member that hears its leader before it has a stream for proposals loses its
// first registration. It must not wait for a request's whole timeout to try again.
func TestARegistrationThatIsLostIsRepeatedSoon(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		n := c.followers(leader)[0]
		<-n.Published()
		c.stop(n.Name())
		cfg := c.cfgs[n.Name()]
		cfg.ClientURLs = []string{"http://moved:2379"}
		dial, begun := cfg.Dial, time.Now()
		var mu sync.Mutex
		dialled := make(map[string]bool)
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			second := dialled[addr]
			dialled[addr] = true
			mu.Unlock()
			if second && time.Since(begun) < 500*time.Millisecond {
				return nil, errors.New("not yet")
			}
			return dial(ctx, addr)
		}
		c.cfgs[n.Name()] = cfg
		<-c.start(n.Name()).Published()
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("known to the cluster after %v, want about two tries of an election timeout each", took)
		}
	})
}

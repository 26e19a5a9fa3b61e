package kvnode

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// A membership change that a follower proposes takes effect although the leader has
// another change under way, its own raise of the format or that of the other follower.
func TestChangesThatMeetAllTakeEffect(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.raised(leader)
		c.delay(25 * time.Millisecond)
		var all sync.WaitGroup
		for k := range 20 {
			all.Go(func() { leader.formats.propose(store.FormatNewest) })
			time.Sleep(time.Duration(k) * 4 * time.Millisecond)
			for _, n := range c.followers(leader) {
				all.Go(func() {
					if err := n.UpdateMember(t.Context(), n.ID(), []string{fmt.Sprintf("http://%s:2380", n.Name())}); err != nil {
						t.Errorf("UpdateMember() through %s, %d ms after the raise = %v", n.Name(), 4*k, err)
					}
				})
			}
			all.Wait()
		}
	})
}

package kvnode

import (
	"context"
	"strings"
	"testing"
	"time"
)

// While the loop is held up, by a disk that does not answer a read for example, what
// nobody waits for any more is not kept: clients come again, and the limits of
// proposals count those alone that are waited for.
func TestWhatIsOverdueIsNotKept(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		held, release := make(chan struct{}), make(chan struct{})
		n.calls.Push(func(*raftLoop) { close(held); <-release })
		<-held
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := put(ctx, n, "k", strings.Repeat("x", 1<<10)); err == nil {
				t.Error("put() while the loop is held up = nil")
			}
			cancel()
		}
		kept := n.proposals.box.Len()
		close(release)
		if kept > 0 {
			t.Errorf("%d proposals are kept that nobody waits for, want none", kept)
		}
		c.put(n, "k", "v")
	})
}

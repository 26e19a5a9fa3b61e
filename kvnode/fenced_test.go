package kvnode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// What a leader proposes for its own term is over with that: it is not proposed in another one, where it
// would be void, and who waits for it hears so at once.
func TestWhatALeaderProposesForItsTermEndsWithIt(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader, follower, other := c.settled()
		last := c.lastIndex(other)
		c.net.CutOneWay(leader.Name(), follower.Name())
		c.net.CutOneWay(leader.Name(), other.Name())
		done := make(chan error, 1)
		go func() {
			r := &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}}
			res, err := leader.ProposeFenced(t.Context(), leader.Term(), r)
			done <- errors.Join(err, res.Err)
		}()
		synctest.Wait()
		c.leader(leader)
		c.net.HealAll()
		if err := <-done; !errors.Is(err, ErrLeaderChanged) {
			t.Errorf("work of a leader that is replaced = %v, want ErrLeaderChanged", err)
		}
		time.Sleep(3 * time.Second)
		if got := leader.Status().Counts.VoidedProposals; got != 0 {
			t.Errorf("%d attempts were void, want none: it is attempted once", got)
		}
		if entries := c.lastIndex(other) - last; entries != 1 {
			t.Errorf("the next leader's log has %d entries more, want its first alone", entries)
		}
	})
}

package kvnode

import (
	"testing"
	"time"
)

// A read at a follower takes no turn of either raft loop: both stand still meanwhile.
func TestAForwardedReadTakesNoTurnOfALoop(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(2 * time.Second) // all have applied it, and their holds are over
		f := c.followers(leader)[0]
		goOn := make(chan struct{})
		for _, n := range []*Node{leader, f} {
			still := make(chan struct{})
			n.calls.put(func(*raftLoop) {
				close(still)
				<-goOn
			})
			<-still
		}
		begun := time.Now()
		r, err := f.Read(t.Context(), ReadLease)
		took := time.Since(begun)
		close(goOn)
		if err != nil || r.Path != "forwarded" || took > 20*time.Millisecond {
			t.Errorf("Read() at a follower = %+v, %v after %v while both loops stand still, want it forwarded at once", r, err, took)
		}
	})
}

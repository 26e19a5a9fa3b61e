package kvnode

import (
	"context"
	"log/slog"
	"sync/atomic"
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
			n.calls.Push(func(*raftLoop) {
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

// onLine calls f for each line that is logged.
type onLine func(name string)

func (f onLine) Enabled(context.Context, slog.Level) bool { return true }

func (f onLine) Handle(_ context.Context, r slog.Record) error {
	f(r.Message)
	return nil
}
func (f onLine) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f onLine) WithGroup(string) slog.Handler      { return f }

// A read comes when the lease knows of the next leader and the node does not yet. It asks the
// next one: the last would drop the request, and nobody asks again for half an election timeout.
func TestAForwardedReadAsksTheLeaderThatTheLeaseKnows(t *testing.T) {
	var moved atomic.Pointer[func()]
	logger := func(cfg *Config) {
		cfg.Logger = slog.New(onLine(func(line string) {
			if line != "leader" {
				return
			}
			if f := moved.Swap(nil); f != nil {
				(*f)()
			}
		}))
	}
	inCluster(t, 3, logger, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(2 * time.Second) // all have applied it, and their holds are over
		next, f := c.followers(leader)[0], c.followers(leader)[1]
		goOn, told := make(chan struct{}), make(chan struct{})
		f.calls.Push(func(*raftLoop) { <-goOn })
		if err := leader.MoveLeader(t.Context(), next.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // what raft says of it waits for f's loop
		moved.Store(new(func() {
			close(told)
			time.Sleep(10 * time.Millisecond)
		}))
		close(goOn)
		<-told
		was, begun := f.Leader(), time.Now()
		r, err := f.Read(t.Context(), ReadLease)
		if took := time.Since(begun); err != nil || r.Path != "forwarded" || took > 100*time.Millisecond || was != leader.ID() {
			t.Errorf("Read() at a follower of %x = %+v, %v after %v, want it forwarded by %x", was, r, err, took, next.ID())
		}
	})
}

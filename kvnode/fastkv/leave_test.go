package fastkv

import (
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// Of a member that stops, the client repeats the writes that were not taken, by calls, and waits for
// those that were. New requests go by another stream.
func TestAMemberThatStopsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		put := r.mutations()["Put"]
		taken := asked(func() error { return put(t.Context()) })
		s := r.accept(1)
		first := s.next()
		var others []<-chan error
		for range 2 {
			others = append(others, asked(func() error { return put(t.Context()) }))
			s.next()
		}
		synctest.Wait()
		s.answers <- fastwire.AppendEnding(fastwire.AppendWho(nil, 1, 1), first.ID)
		for _, end := range others {
			if err := <-end; err != nil {
				t.Errorf("a put that the member has not taken = %v, want that a call makes it", err)
			}
		}
		if n := r.calls.Load(); n != 2 {
			t.Errorf("%d calls, want one for each of the 2 puts that were not taken", n)
		}
		time.Sleep(again)
		next := asked(func() error { _, err := r.get(t.Context()); return err })
		other := r.accept(1)
		other.answer(other.next().ID, &pb.RangeResponse{})
		if err := <-next; err != nil {
			t.Errorf("a get afterwards = %v, want it by another stream", err)
		}
		if s.ctx.Err() != nil {
			t.Error("the stream was ended with the request that was taken")
		}
		s.answer(first.ID, &pb.PutResponse{})
		if err := <-taken; err != nil || r.calls.Load() != 2 {
			t.Errorf("the put that was taken = %v after %d calls, want its answer", err, r.calls.Load())
		}
		synctest.Wait()
		if s.ctx.Err() == nil {
			t.Error("the stream goes on when all that was taken is answered")
		}
	})
}

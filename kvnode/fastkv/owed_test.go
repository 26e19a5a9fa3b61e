package fastkv

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The end of a wait asks for no answer: one that crosses the answer gets none, and the stream
// is as good as before.
func TestTheEndOfAWaitIsOwedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		gone := asked(func() error { _, err := r.get(ctx); return err })
		s := r.accept(1)
		first := s.next()
		stays := asked(func() error { _, err := r.get(t.Context()); return err })
		synctest.Wait() // its message is being sent
		cancel()
		if err := <-gone; err == nil {
			t.Error("a request that was cancelled is answered")
		}
		s.answer(first.ID, &pb.RangeResponse{})
		s.answer(first.ID+1, &pb.RangeResponse{}) // before SendMsg returns
		if err := <-stays; err != nil {
			t.Error(err)
		}
		s.next()
		if told := s.next(); !told.Cancel || told.ID != first.ID {
			t.Errorf("the server is told %+v, want the end of %d", told, first.ID)
		}
		time.Sleep(2 * pause)
		r.wantBy(s, "long after")
	})
}

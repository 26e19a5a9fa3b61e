package fastkv

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// If a yield takes long, the sender stops yielding for a while.
func TestLongYieldsPauseYielding(t *testing.T) {
	var o yieldPolicy
	now := time.Now()
	may := func(want bool, when string) {
		t.Helper()
		if got := o.shouldYield(now); got != want {
			t.Errorf("%s others may run: %v, want %v", when, got, want)
		}
	}
	may(true, "at first")
	o.yielded(now, now.Add(longYield))
	may(true, "after a short run")
	o.yielded(now, now.Add(longYield+1))
	now = now.Add(longYield + 1)
	may(false, "after a long run")
	now = now.Add(yieldPause - 1)
	may(false, "a moment before the pause is over")
	now = now.Add(1)
	may(true, "after the pause")
}

// When a member stops, the client makes the requests that it has not received as calls, and waits
// for the others. New requests use another stream.
func TestStoppingMemberIsLeft(t *testing.T) {
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
		s.answers <- fastwire.AppendStopping(fastwire.AppendMember(nil, 1, 1), first.ID)
		for _, end := range others {
			if err := <-end; err != nil {
				t.Errorf("a put that the member has not taken = %v, want that a call makes it", err)
			}
		}
		if n := r.calls.Load(); n != 2 {
			t.Errorf("%d calls, want one for each of the 2 puts that were not taken", n)
		}
		time.Sleep(minRetry)
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

// No answer is due to a cancellation: if it crosses the answer, there is none, and the stream stays usable.
func TestCancellationNeedsNoAnswer(t *testing.T) {
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
		time.Sleep(2 * answerTimeout)
		r.wantBy(s, "long after")
	})
}

// Setting the wall clock does not affect a stream: only the duration of the silence counts.
func TestAClockThatIsSet(t *testing.T) {
	s := newStream(t.Context(), func() {}, nil)
	s.awaitingSince.Store(1)
	soon, late := s.opened.Add(answerTimeout/2), s.opened.Add(2*answerTimeout)
	for _, by := range []time.Duration{-time.Hour, 0, time.Hour} {
		if !s.usable(set(soon, by)) {
			t.Errorf("a stream that was silent for a moment is not used once the clock is set by %v", by)
		}
		if s.usable(set(late, by)) {
			t.Errorf("a stream that was silent for %v is used once the clock is set by %v", 2*answerTimeout, by)
		}
	}
}

// set returns the time that would have been read at now if the wall clock had been set. A
// time.Time has the wall clock's seconds from bit 30 of its first word on, and the monotonic
// clock in its second.
func set(now time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&now)) += uint64(by/time.Second) << 30
	return now
}

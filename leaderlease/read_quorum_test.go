package leaderlease

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestReadIndexTakesARoundUnderAValidLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t)
		read := make(chan answered, 1)
		go func() {
			r, err := p.ReadIndex(t.Context())
			read <- answered{r, err}
		}()
		synctest.Wait()
		rctx := p.asked()
		if rctx == nil {
			t.Fatal("ReadRequests() is empty, want a round although the lease is valid")
		}
		p.clock.Advance(ms)
		p.renew() // must not answer it either
		synctest.Wait()
		select {
		case a := <-read:
			t.Fatalf("ReadIndex() = %+v, %v before the round came back", a.read, a.err)
		default:
		}
		p.answer(rctx, p.last)
		if a := <-read; a.err != nil || a.read.Path != PathReadIndex || a.read.Index != p.last {
			t.Errorf("ReadIndex() = %+v, %v, want index %d by read_index", a.read, a.err, p.last)
		}
	})
}

// A read that asked for a round before the reign's first commit is not given
// the moment of that commit, from which a renewal could answer it.
func TestReadIndexBeforeTheFirstCommitWaitsForItsRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.win(2)
		ctx, cancel := context.WithCancel(t.Context())
		read := make(chan answered, 1)
		go func() {
			r, err := p.ReadIndex(ctx)
			read <- answered{r, err}
		}()
		synctest.Wait()
		p.commitTo(p.last)
		p.Applied(p.last)
		p.clock.Advance(ms)
		p.renew()
		synctest.Wait()
		cancel()
		if a := <-read; a.err == nil {
			t.Errorf("ReadIndex() = %+v without a round, want its context's error", a.read)
		}
	})
}

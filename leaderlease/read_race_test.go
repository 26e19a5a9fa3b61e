package leaderlease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// Everything at once, for the race detector: readers of each kind, while the
// raft loop renews, loses, regains and finally closes the lease. What readers
// are served must be applied, and must never go back.
func TestReadersRaceTheRaftLoop(t *testing.T) {
	p := leading(t)
	r := &racers{t: t, p: p}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(r.tryReads)
		wg.Go(r.readInTime)
	}
	wg.Go(r.startAndAbandon)

	for i := range 400 {
		p.clock.Advance(10 * ms)
		p.renew()
		p.Tick()
		p.commitNew()
		p.Applied(p.last)
		if rctx := p.asked(); rctx != nil {
			p.answer(rctx, p.last)
		}
		switch i % 20 {
		case 5:
			p.invalidate()
		case 10:
			p.follow(p.term+1, 2)
			p.lead(p.term + 1)
		case 15:
			p.clock.Advance(time.Second)
		}
	}
	p.Close()
	wg.Wait()
	r.pending.Wait()
	t.Logf("served: %d TryRead, %d Read; %d StartRead answered", r.tried.Load(), r.read.Load(), r.started.Load())
}

// racers read until the lease is closed.
type racers struct {
	t                    *testing.T
	p                    *puppet
	tried, read, started atomic.Uint64
	pending              sync.WaitGroup // each StartRead ends, and once
}

func (r *racers) closed() bool {
	_, s := r.p.TryRead()
	return s == core.Closed
}

func (r *racers) tryReads() {
	for newest := uint64(0); !r.closed(); {
		index, s := r.p.TryRead()
		if s != core.Valid {
			continue
		}
		if index < newest {
			r.t.Errorf("TryRead() = %d after %d, want it never to go back", index, newest)
		}
		newest = index
		r.tried.Add(1)
	}
}

func (r *racers) readInTime() {
	for newest := uint64(0); !r.closed(); {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Millisecond)
		got, err := r.p.Read(ctx)
		cancel()
		switch {
		case err == nil && (got.Index < newest || got.Index > r.p.Info().Applied):
			r.t.Errorf("Read() = %+v after index %d, applied %d", got, newest, r.p.Info().Applied)
		case err == nil:
			newest = got.Index
			r.read.Add(1)
		case !errors.Is(err, ErrNoLease) && !errors.Is(err, context.DeadlineExceeded):
			r.t.Errorf("Read() = %v, want ErrNoLease or the context's error", err)
		}
	}
}

// startAndAbandon ends half of its reads early, and asks for all else there is.
func (r *racers) startAndAbandon() {
	done := func(ReadResult, error) { r.started.Add(1); r.pending.Done() }
	for !r.closed() {
		ctx, cancel := context.WithCancel(r.t.Context())
		go cancel()
		r.pending.Add(2)
		r.p.StartRead(ctx, done)
		r.p.StartReadIndex(context.Background(), done)
		if _, stop, err := r.p.Context(r.t.Context()); err == nil {
			stop()
		}
		_, _ = r.p.Token()
		events, stop := r.p.Watch()
		<-events
		stop()
		r.p.Stats()
	}
}

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
	var wg sync.WaitGroup
	var tried, read, started atomic.Uint64

	closed := func() bool { _, s := p.TryRead(); return s == core.Closed }
	for range 4 {
		wg.Go(func() {
			for newest := uint64(0); !closed(); {
				index, s := p.TryRead()
				if s != core.Valid {
					continue
				}
				if index < newest {
					t.Errorf("TryRead() = %d after %d, want it never to go back", index, newest)
				}
				newest = index
				tried.Add(1)
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for newest := uint64(0); !closed(); {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				r, err := p.Read(ctx)
				cancel()
				switch {
				case err == nil && (r.Index < newest || r.Index > p.Info().Applied):
					t.Errorf("Read() = %+v after index %d, applied %d", r, newest, p.Info().Applied)
				case err == nil:
					newest = r.Index
					read.Add(1)
				case !errors.Is(err, ErrNoLease) && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("Read() = %v, want ErrNoLease or the context's error", err)
				}
			}
		})
	}
	var pending sync.WaitGroup // each read ends, and once
	wg.Go(func() {
		for !closed() {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			pending.Add(2)
			p.StartRead(ctx, func(Read, error) { started.Add(1); pending.Done() })
			p.StartReadIndex(context.Background(), func(Read, error) { started.Add(1); pending.Done() })
			if _, stop, err := p.Context(t.Context()); err == nil {
				stop()
			}
			_, _ = p.Token()
			events, stop := p.Watch()
			<-events
			stop()
			p.Stats()
		}
	})

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
			p.Invalidate()
		case 10:
			p.follow(p.term+1, 2)
			p.lead(p.term + 1)
		case 15:
			p.clock.Advance(time.Second)
		}
	}
	p.Close()
	wg.Wait()
	pending.Wait()
	t.Logf("served: %d TryRead, %d Read; %d StartRead answered", tried.Load(), read.Load(), started.Load())
}

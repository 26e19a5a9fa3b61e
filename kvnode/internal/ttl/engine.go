package ttl

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Engine counts time while its member leads. Renew and TimeLeft may be called by
// any goroutine, Changed by the one that applies.
type Engine struct {
	cfg   Config // immutable
	stats counters
	// complain limits what is logged of TTL leases, of which there may be thousands.
	complain rate.Sometimes

	// reign is nil while this member does not lead.
	reign atomic.Pointer[reign]
}

// New returns an Engine. It does nothing before Run.
func New(cfg Config) *Engine {
	cfg = cfg.WithDefaults()
	cfg.Logger = cfg.Logger.With("component", "ttl")
	return &Engine{cfg: cfg, complain: rate.Sometimes{First: 10, Interval: 10 * time.Second}}
}

// Run counts time whenever this member leads, until stop is closed. When it
// returns nothing of it is left running.
func (e *Engine) Run(stop <-chan struct{}) {
	for {
		term, over := e.cfg.Member.Reign()
		if term != 0 {
			e.lead(term, over, stop)
		}
		select {
		case <-over:
		case <-stop:
			return
		}
	}
}

// lead returns when the reign is over.
func (e *Engine) lead(term uint64, over, stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	r := newReign(ctx, e, term)
	// From here on r hears of changes; what was there before is adopted.
	e.reign.Store(r)
	r.workers.Go(func() {
		select {
		case <-over:
		case <-stop:
		}
		// Everything stops at once, whatever it waits for.
		e.reign.Store(nil)
		cancel()
	})
	if !r.caughtUp() {
		r.workers.Wait()
		return
	}
	r.adopt()
	ticker := time.NewTicker(e.cfg.Interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.tick()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	r.workers.Wait()
}

// Changed tells the engine that l was granted, or, with a TTL of 0, is gone. The
// store calls it, in the order of the log, once it is so.
func (e *Engine) Changed(l store.TTLLease) {
	if r := e.reign.Load(); r != nil {
		r.changed(l)
	}
}

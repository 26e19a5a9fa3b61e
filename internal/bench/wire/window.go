package wire

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/internal/bench/load"
	"github.com/leaderlease/go/internal/pause"
)

// Times are how long a measurement takes.
type Times struct {
	// Warmup comes first and is not counted.
	Warmup   time.Duration
	Duration time.Duration
}

// grace is how long what is under way at the end may take.
const grace = 10 * time.Second

// The phases of a measurement.
const (
	warming int32 = iota
	counting
	over
)

// window is the part of a measurement that counts. Its end is not a deadline of
// the operations' contexts: gRPC fails calls up to a timer's lateness before such
// a context says that it has ended, and clients that go on at once would count
// failures that are the benchmark's own.
type window struct{ phase atomic.Int32 }

// pass leads through the phases and returns how long the counting took.
func (w *window) pass(ctx context.Context, t Times) time.Duration {
	_ = pause.For(ctx, t.Warmup)
	w.phase.Store(counting)
	begin := time.Now()
	_ = pause.For(ctx, t.Duration)
	w.phase.Store(over)
	return time.Since(begin)
}

func (w *window) isOver() bool { return w.phase.Load() == over }

// note counts an operation that has ended now. The end decides whether it counts
// as done.
func (w *window) note(t *load.Tally, took time.Duration, err error) {
	switch phase := w.phase.Load(); {
	case phase == warming:
	case err != nil:
		t.Fail(err)
	case phase == counting:
		t.Record(took)
	default:
		t.Late(took)
	}
}

// counter is a tally that several clients share.
type counter struct {
	mu    sync.Mutex
	tally *load.Tally
}

func newCounter() *counter { return &counter{tally: load.NewTally()} }

func (c *counter) note(w *window, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.note(c.tally, took, err)
}

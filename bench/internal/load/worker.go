package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"
)

// worker is one client's goroutine.
type worker struct {
	run    *run
	client Client
	random *rand.Rand
	key    func() int

	tally   [kinds]*Tally
	latency [kinds]latencies
	stale   int64
}

// yieldEvery is after how many operations a goroutine lets others run. Clients
// of a server wait for the network now and then; goroutines that never wait
// would keep a raft loop in the same process from running for 10 ms at a time.
const yieldEvery = 64

// loop works until the load is over.
func (w *worker) loop(ctx context.Context) {
	if w.run.Rate > 0 {
		w.open(ctx)
		return
	}
	w.closed(ctx)
}

func (w *worker) closed(ctx context.Context) {
	var warm int64
	for i := int64(0); ctx.Err() == nil; i++ {
		if i%yieldEvery == yieldEvery-1 {
			runtime.Gosched()
		}
		switch w.run.phase.Load() {
		case warming:
			w.do(ctx, opts{timed: true})
			warm++
			w.run.count(&warm)
		case measuring:
			w.do(ctx, opts{timed: i%w.run.sample.Load() == 0})
		default:
			return
		}
	}
}

// count adds to the warm-up's operations in bulk.
func (r *run) count(n *int64) {
	if *n == yieldEvery {
		r.warm.Add(*n)
		*n = 0
	}
}

var errNotBegun = errors.New("load: not begun before the end, all clients were busy")

// open takes the operations as they fall due.
func (w *worker) open(ctx context.Context) {
	begin := w.run.start.Add(w.run.Warmup)
	for due := range w.run.due {
		o := opts{open: true, warmup: due.Before(begin), timed: true, due: due}
		if ctx.Err() != nil {
			if kind, _ := w.choose(); !o.warmup {
				w.tally[kind].Fail(errNotBegun)
			}
			continue
		}
		w.do(ctx, o)
	}
}

// opts says what becomes of an operation.
type opts struct {
	timed bool
	// In an open loop it is known beforehand when the operation should begin, and
	// whether that belongs to the warm-up.
	open, warmup bool
	due          time.Time
}

// standing says how an operation that has ended now counts: not at all; as
// overlapping the measurement, with its latency alone; or as done in it. In a
// closed loop the end decides. An operation that was stuck throughout the
// measurement shows in the latencies, and a client that got nothing done in the
// throughput.
func (w *worker) standing(o opts) (overlaps, within bool) {
	if o.open {
		return !o.warmup, !o.warmup
	}
	phase := w.run.phase.Load()
	return phase >= measuring, phase == measuring
}

func (w *worker) choose() (Kind, int) {
	kind := Read
	if p := w.run.WritePercent; p == 100 || p > 0 && w.random.IntN(100) < p {
		kind = Write
	}
	return kind, w.key()
}

// do does one operation and audits it.
func (w *worker) do(ctx context.Context, o opts) {
	kind, key := w.choose()
	if o.timed && !o.open {
		o.due = time.Now()
	}
	var (
		stale bool
		path  Path
		err   error
	)
	if kind == Read {
		stale, path, err = w.read(ctx, key)
	} else {
		err = w.write(ctx, key)
	}
	if stale {
		w.stale++
	}
	w.note(kind, o, path, stale, err)
}

// read takes the floor before it asks.
func (w *worker) read(ctx context.Context, key int) (stale bool, path Path, err error) {
	floor := w.run.Floor.At(key)
	seen, err := w.client.Read(ctx, key)
	if err != nil {
		return false, 0, err
	}
	w.run.Floor.Raise(key, seen.Version)
	return seen.Version < floor, seen.Path, nil
}

func (w *worker) write(ctx context.Context, key int) error {
	version, err := w.client.Write(ctx, key)
	if err == nil {
		w.run.Floor.Raise(key, version)
	}
	return err
}

func (w *worker) note(kind Kind, o opts, path Path, stale bool, err error) {
	overlaps, within := w.standing(o)
	if !overlaps {
		return
	}
	t := w.tally[kind]
	if err != nil {
		t.Fail(err)
		return
	}
	if within {
		t.Done++
		t.Paths[path]++
	}
	if stale {
		t.Stale++
	}
	if o.timed {
		w.latency[kind].record(time.Since(o.due))
	}
}

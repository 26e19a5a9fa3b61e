package load

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/internal/durations"
)

// The phases of a closed loop.
const (
	warming int32 = iota
	measuring
	stopping
)

// run is a load under way.
type run struct {
	*Load
	phase  atomic.Int32
	sample atomic.Int64 // one operation in sample is timed
	warm   atomic.Int64 // operations of the warm-up

	start time.Time // of an open loop's schedule
	// due receives the time at which each operation of an open loop should begin, at that time.
	due chan time.Time

	mu     sync.Mutex // of the histograms
	result Result
}

// Run runs the load. Failing operations are no error: they are in the Result.
func (l Load) Run(ctx context.Context) (*Result, error) {
	if l.Floor == nil {
		l.Floor = NewFloor(l.Keys.Count)
	}
	if l.Grace == 0 {
		l.Grace = defaultGrace
	}
	r := &run{Load: &l, result: Result{Read: NewTally(), Write: NewTally()}}
	r.sample.Store(1)
	r.start = time.Now()
	r.due = make(chan time.Time, r.scheduled())
	bounded, cancel := context.WithTimeout(ctx, l.Warmup+l.Duration+l.Grace)
	defer cancel()
	var workers sync.WaitGroup
	all := make([]*worker, l.Clients)
	for i := range all {
		all[i] = r.newWorker(i)
		workers.Go(func() { all[i].loop(bounded) })
	}
	if l.Rate == 0 {
		r.pace(bounded)
	} else {
		r.schedule(bounded)
	}
	workers.Wait()
	r.collect(all)
	return &r.result, ctx.Err()
}

// pace leads a closed loop through its phases.
func (r *run) pace(ctx context.Context) {
	_ = durations.Sleep(ctx, r.Warmup)
	if tooFastToTime(r.warm.Load(), r.Warmup, runtime.GOMAXPROCS(0)) {
		r.sample.Store(fastSample)
	}
	r.phase.Store(measuring)
	begin := time.Now()
	_ = durations.Sleep(ctx, r.Duration)
	r.phase.Store(stopping)
	r.result.Elapsed = time.Since(begin)
}

// scheduled returns how many operations of an open loop are due.
func (r *run) scheduled() int {
	return int(math.Ceil(r.Rate * (r.Warmup + r.Duration).Seconds()))
}

// schedule hands out the operations of an open loop when they are due. It never waits
// for clients: operations queue for them.
func (r *run) schedule(ctx context.Context) {
	defer close(r.due)
	nap := r.Sleep
	if nap == nil {
		nap = time.Sleep
	}
	for i := range r.scheduled() {
		at := r.start.Add(time.Duration(float64(i) / r.Rate * float64(time.Second)))
		if ctx.Err() == nil {
			nap(time.Until(at))
		}
		r.due <- at
	}
}

const (
	// One operation in fastSample is timed where timing each would take longer than
	// the operations. The rule is the same for every target.
	fastSample = 64
	fastNanos  = 2000
)

// tooFastToTime reports whether an operation took less than fastNanos of processor time.
func tooFastToTime(ops int64, took time.Duration, processors int) bool {
	return ops > 0 && took.Nanoseconds()*int64(processors)/ops < fastNanos
}

func (r *run) collect(all []*worker) {
	for _, w := range all {
		for k := range kinds {
			w.latency[k].flush()
			r.result.Of(k).Add(&w.counts[k])
		}
		r.result.AuditedStale += w.stale
	}
	r.result.Asked = [kinds]bool{Read: r.WritePercent < 100, Write: r.WritePercent > 0}
	r.result.Sample = int(r.sample.Load())
	if r.Rate > 0 {
		r.result.Elapsed = max(time.Since(r.start)-r.Warmup, r.Duration)
	}
}

func (r *run) newWorker(i int) *worker {
	random := rand.New(rand.NewPCG(r.Seed, uint64(i)))
	w := &worker{run: r, client: r.Target.Client(i), random: random, key: r.Keys.chooser(random)}
	for k := range kinds {
		w.latency[k] = latencies{mu: &r.mu, to: r.result.Of(k).Latency, kept: make([]int64, 0, keptLatencies)}
	}
	return w
}

// worker is one client's goroutine.
type worker struct {
	run    *run
	client Client
	random *rand.Rand
	key    func() int

	counts  [kinds]Counts
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
				w.counts[kind].Fail(errNotBegun)
			}
			continue
		}
		w.do(ctx, o)
	}
}

// opts says how an operation is counted.
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
	c := &w.counts[kind]
	if err != nil {
		c.Fail(err)
		return
	}
	if within {
		c.Done++
		c.Paths[path]++
	}
	if stale {
		c.Stale++
	}
	if o.timed {
		w.latency[kind].record(time.Since(o.due))
	}
}

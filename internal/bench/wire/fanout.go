package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/bench/load"
)

// FanOut is one writer, and the watchers of the key it writes.
type FanOut struct {
	// Leader is where the writer is.
	Leader string
	// Endpoints are where the watchers are: stream i at Endpoints[i mod n], on a
	// connection of its own.
	Endpoints []string
	Watchers  int
	// Streams share the watchers out.
	Streams int
	// Rate is how many puts a second are due, evenly; latencies are from then on.
	// Default: 0, a closed loop: a put begins when the one before is acknowledged
	// and watchers are no more than Ahead events behind, on average.
	Rate float64
	// Sleep paces an open loop. Default: time.Sleep.
	Sleep func(time.Duration)
	// Wrong makes the streams wrong on purpose.
	Wrong Wrong
}

// Ahead is how far the writer of a closed loop may be ahead of the watchers.
// Without a limit it would measure how much of a backlog a second makes.
const Ahead = 16

// FanOutResult is what came of it.
type FanOutResult struct {
	Elapsed time.Duration
	// Put and Event are from when the put began, or was due, until it was
	// acknowledged, or the event was with a watcher.
	Put, Event *load.Tally
	// Disorder is of all watchers, from the first put to the last.
	Disorder Disorder
}

// watchedKey is the key that is written.
const watchedKey = "/bench/watched"

// Measure lets the writer write, and audits what each watcher gets. Streams that
// fail and watchers that are cancelled are failures among the events.
func (f *FanOut) Measure(ctx context.Context, t Times) (*FanOutResult, error) {
	bounded, cancel := context.WithTimeout(ctx, t.Warmup+t.Duration+2*grace)
	defer cancel()
	r := &fanOutRun{FanOut: f, puts: newPuts(), progress: make(chan struct{}, 1), result: FanOutResult{Put: load.NewTally(), Event: load.NewTally()}}
	var err error
	if r.writer, err = newClient(f.Leader); err != nil {
		return nil, err
	}
	defer r.writer.Close() //nolint:errcheck // nothing is under way
	streams, err := r.watch(bounded)
	defer closeStreams(streams)
	if err != nil {
		return nil, err
	}
	var watching, writing sync.WaitGroup
	for _, s := range streams {
		watching.Go(s.receive)
	}
	writing.Go(func() { r.write(bounded) })
	r.result.Elapsed = r.window.pass(ctx, t)
	writing.Wait()
	err = errors.Join(ctx.Err(), r.puts.end(bounded, r.writer))
	// Who has not got the last event by then lacks it.
	last := time.AfterFunc(grace, cancel)
	defer last.Stop()
	if err != nil {
		cancel()
	}
	watching.Wait()
	for _, s := range streams {
		s.finish(&r.result)
	}
	return &r.result, err
}

// fanOutRun is one measurement.
type fanOutRun struct {
	*FanOut
	window window
	writer *clientv3.Client
	puts   *puts
	result FanOutResult // Put is the writer's, the rest is filled in at the end

	seen atomic.Int64 // events, over all watchers
	// progress has one token if seen has grown and the writer waits, perhaps.
	progress chan struct{}
}

// watch opens the streams. Those it has opened are to be closed even if it fails.
func (r *fanOutRun) watch(ctx context.Context) (all []*watchStream, err error) {
	for i := range r.Streams {
		s := newWatchStream(r, r.Endpoints[i%len(r.Endpoints)])
		all = append(all, s)
		count := (r.Watchers - i + r.Streams - 1) / r.Streams // they differ by one at most
		if err := s.open(ctx, count); err != nil {
			return all, fmt.Errorf("%d watchers at %s: %w", count, s.endpoint, err)
		}
	}
	return all, nil
}

func closeStreams(all []*watchStream) {
	for _, s := range all {
		s.close()
	}
}

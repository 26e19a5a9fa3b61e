package size

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/internal/kvclient"
)

// Probed are the latencies of a client, from when each of its requests was due.
type Probed struct{ Put, Get *load.Tally }

const (
	// probeEvery is the interval between two requests. A shorter one would be a load
	// of its own.
	probeEvery = 10 * time.Millisecond
	probeKey   = "/probe"
	// probePatience is the timeout of a request.
	probePatience = 30 * time.Second
)

// Probe puts and reads at a fixed rate while fn runs.
func Probe(ctx context.Context, endpoint string, fn func() error) (p Probed, err error) {
	client, err := kvclient.New(nil, []string{endpoint})
	if err != nil {
		return p, err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	p = Probed{Put: load.NewTally(), Get: load.NewTally()}
	if err := askOnce(ctx, client); err != nil {
		return p, err
	}
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		paced(ctx, end, p.Put, func(ctx context.Context) error {
			_, err := client.Put(ctx, probeKey, "")
			return err
		})
	})
	wg.Go(func() {
		paced(ctx, end, p.Get, func(ctx context.Context) error {
			_, err := client.Get(ctx, probeKey)
			return err
		})
	})
	err = fn()
	close(end)
	wg.Wait()
	return p, err
}

// askOnce connects.
func askOnce(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	_, err := client.Get(ctx, probeKey)
	return err
}

// paced sends requests until end is closed, without waiting for the answers to earlier
// ones: a client that waited would fall behind a server with latencies above probeEvery.
// Requests that run at the end still count.
func paced(ctx context.Context, end <-chan struct{}, t *load.Tally, ask func(context.Context) error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	defer wg.Wait()
	for due := time.Now(); ; due = due.Add(probeEvery) {
		select {
		case <-end:
		case <-ctx.Done():
		case <-time.After(time.Until(due)):
		}
		if ctx.Err() != nil || closed(end) {
			return
		}
		wg.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, probePatience)
			defer cancel()
			err := ask(bounded)
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Fail(err)
				t.Late(took)
				return
			}
			t.Record(took)
		})
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

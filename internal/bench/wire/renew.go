package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/bench/load"
	"github.com/leaderlease/go/internal/pause"
)

// renewTTL is in seconds: longer than any run, so that no TTL lease may expire.
const renewTTL = 3600

// TTLLeases are TTL leases to renew.
type TTLLeases struct {
	client *clientv3.Client
	ids    []int64
}

// atOnce is how many are granted, or revoked, at a time.
const atOnce = 64

// GrantTTLLeases grants n TTL leases.
func GrantTTLLeases(ctx context.Context, endpoint string, n int) (*TTLLeases, error) {
	c, err := newClient(endpoint)
	if err != nil {
		return nil, err
	}
	l := &TTLLeases{client: c, ids: make([]int64, n)}
	err = inParallel(n, func(i int) error {
		grant, err := c.Grant(ctx, renewTTL)
		if status.Code(err) == codes.Unimplemented {
			return fmt.Errorf("%w: %s answers: %w", ErrNoTTLLeases, endpoint, err)
		}
		if err != nil {
			return fmt.Errorf("grant a TTL lease at %s: %w", endpoint, err)
		}
		l.ids[i] = int64(grant.ID)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// inParallel does n things, a few at a time, and returns one of their errors.
func inParallel(n int, do func(i int) error) error {
	var next atomic.Int64
	var failed error
	var once sync.Once
	var wg sync.WaitGroup
	for range min(n, atOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// Close revokes those that were granted.
func (l *TTLLeases) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := inParallel(len(l.ids), func(i int) error {
		if l.ids[i] == 0 {
			return nil
		}
		_, err := l.client.Revoke(ctx, clientv3.LeaseID(l.ids[i]))
		return err
	})
	return errors.Join(err, l.client.Close())
}

// RenewResult is what renewing has come to.
type RenewResult struct {
	Elapsed time.Duration
	Renew   *load.Tally
	// Wrong counts answers, those of the warm-up included, for another TTL lease
	// than was asked for, or that say that one is gone which cannot be.
	Wrong int64
}

// Renew renews the TTL leases in turn on a number of streams, each with a
// connection to the endpoint of its own and one keep-alive under way. The
// streams are those of etcd's API as it is: clientv3 would send a keep-alive for
// each TTL lease every third of its TTL and no sooner.
func (l *TTLLeases) Renew(ctx context.Context, endpoint string, streams int, t Times) (*RenewResult, error) {
	r := &renewRun{TTLLeases: l, streams: streams, renew: newCounter()}
	conns := make([]*clientv3.Client, streams)
	defer closeAll(conns)
	for i := range conns {
		var err error
		if conns[i], err = newClient(endpoint); err != nil {
			return nil, err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, openTimeout+t.Warmup+t.Duration+grace)
	defer cancel()
	var wg sync.WaitGroup
	for i, c := range conns {
		api := pb.NewLeaseClient(c.ActiveConnection())
		r.opened.Add(1)
		wg.Go(func() { r.client(bounded, api, i) })
	}
	r.opened.Wait()
	elapsed := r.window.pass(ctx, t)
	wg.Wait()
	return &RenewResult{Elapsed: elapsed, Renew: r.renew.tally, Wrong: r.wrong.Load()}, ctx.Err()
}

func closeAll(clients []*clientv3.Client) {
	for _, c := range clients {
		if c != nil {
			_ = c.Close() // nothing is under way
		}
	}
}

// openTimeout is how long it may take until each stream has had its first answer.
const openTimeout = time.Minute

// renewRun is one measurement.
type renewRun struct {
	*TTLLeases
	streams int
	window  window
	renew   *counter
	wrong   atomic.Int64
	// opened waits until each stream has had its first answer, or failed.
	opened sync.WaitGroup
}

// reopenPause keeps streams that fail from being all there is to do.
const reopenPause = 20 * time.Millisecond

// client renews on one stream, and opens another one when it fails.
func (r *renewRun) client(ctx context.Context, api pb.LeaseClient, number int) {
	opened := sync.OnceFunc(r.opened.Done)
	defer opened()
	for !r.window.isOver() && ctx.Err() == nil {
		if err := r.stream(ctx, api, number, opened); err != nil {
			opened()
			r.renew.note(&r.window, 0, err)
			_ = pause.For(ctx, reopenPause)
		}
	}
}

// stream renews until the window is over, and calls opened when it works. Streams
// share the TTL leases out.
func (r *renewRun) stream(ctx context.Context, api pb.LeaseClient, number int, opened func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := api.LeaseKeepAlive(ctx)
	if err != nil {
		return fmt.Errorf("open a stream of keep-alives: %w", err)
	}
	for i := number; !r.window.isOver(); i += r.streams {
		id := r.ids[i%len(r.ids)]
		begin := time.Now()
		if err := s.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
			return fmt.Errorf("send a keep-alive: %w", err)
		}
		resp, err := s.Recv()
		if err != nil {
			return fmt.Errorf("receive a keep-alive: %w", err)
		}
		if resp.GetID() != id || resp.GetTTL() <= 0 {
			r.wrong.Add(1)
		}
		r.renew.note(&r.window, time.Since(begin), nil)
		opened()
	}
	return nil
}

package etcdapi

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode"
)

// maxRenewals bounds the keep-alives of one stream that are under way: those that
// wait, for a quorum or for the leader on another member, must not hold up the
// others. A client that sends more waits.
const maxRenewals = 64

// keepAliveStream is a stream as the server sees it.
type keepAliveStream = grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]

// keepAlives answers one stream.
type keepAlives struct {
	*API
	stream keepAliveStream
	ctx    context.Context
	slots  chan struct{}
	failed chan error // buffered by one: the first error ends the stream

	sending sync.Mutex
	mu      struct {
		sync.Mutex
		over    bool // no renewal begins any more
		running sync.WaitGroup
	}
}

// LeaseKeepAlive renews TTL leases, any number on one stream. For one that does
// not exist the answer is a TTL of 0. Answers may come in another order than
// requests.
func (s *leaseServer) LeaseKeepAlive(stream keepAliveStream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	k := &keepAlives{API: s.API, stream: stream, ctx: ctx, slots: make(chan struct{}, maxRenewals), failed: make(chan error, 1)}
	// It ends when this stream does, at the latest once this function has returned.
	go k.receive()
	var err error
	select {
	case err = <-k.failed:
	case <-ctx.Done():
		err = clientError(ctx.Err())
	}
	if err != nil {
		cancel() // what is under way is not sent any more
	}
	k.end()
	cancel()
	// The client has sent all there is, and one of the last failed.
	if err == nil {
		select {
		case err = <-k.failed:
		default:
		}
	}
	return err
}

func (k *keepAlives) receive() {
	for {
		r, err := k.stream.Recv()
		if errors.Is(err, io.EOF) {
			k.fail(nil)
			return
		}
		if err != nil {
			k.fail(err)
			return
		}
		select {
		case k.slots <- struct{}{}:
		case <-k.ctx.Done():
			return
		}
		if !k.begin() {
			return
		}
		go k.renew(r.GetID())
	}
}

func (k *keepAlives) fail(err error) {
	select {
	case k.failed <- err:
	default: // the stream ends already
	}
}

func (k *keepAlives) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.over {
		return false
	}
	k.mu.running.Add(1)
	return true
}

// end waits for the renewals under way: nobody may send afterwards.
func (k *keepAlives) end() {
	k.mu.Lock()
	k.mu.over = true
	k.mu.Unlock()
	k.mu.running.Wait()
}

func (k *keepAlives) renew(id int64) {
	defer k.mu.running.Done()
	defer func() { <-k.slots }()
	// The header is of before the renewal: a TTL lease that is revoked at its
	// revision was so after the renewal.
	resp := &pb.LeaseKeepAliveResponse{Header: k.header(), ID: id}
	var err error
	if resp.TTL, err = k.renewed(id); err != nil {
		k.fail(err)
		return
	}
	k.sending.Lock()
	defer k.sending.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	if err := k.stream.Send(resp); err != nil {
		k.fail(err)
	}
}

// renewed returns the TTL of a TTL lease that was renewed, here or by the leader.
func (k *keepAlives) renewed(id int64) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(k.ctx, k.cfg.RequestTimeout, kvnode.ErrTimeout)
	defer cancel()
	ttl, err := leaderWork[int64]{
		here: func(ctx context.Context) (int64, error) { return k.node.RenewTTL(ctx, id) },
		there: func(ctx context.Context, leader grpc.ClientConnInterface) (int64, error) {
			return renewThere(ctx, leader, id)
		},
		repeatable: true,
	}.do(ctx, k.API)
	switch {
	case errors.Is(err, rpctypes.ErrGRPCLeaseNotFound):
		return 0, nil
	case err != nil && errors.Is(context.Cause(ctx), kvnode.ErrTimeout) && k.node.Leader() != 0:
		return 0, rpctypes.ErrGRPCTimeout
	default:
		return ttl, err
	}
}

// renewThere has another member renew one TTL lease.
func renewThere(ctx context.Context, member grpc.ClientConnInterface, id int64) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := pb.NewLeaseClient(member).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	resp, err := stream.Recv() // says why, if Send has failed
	if err != nil {
		return 0, err
	}
	return resp.GetTTL(), nil
}

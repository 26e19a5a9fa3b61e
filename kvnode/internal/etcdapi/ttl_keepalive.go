package etcdapi

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
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
	work   chan int64    // to the goroutine that waits for more
	idle   chan struct{} // holds one token while there is such a goroutine
	failed chan error    // buffered by one: the first error ends the stream

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
	k := &keepAlives{
		API: s.API, stream: stream, ctx: ctx, slots: make(chan struct{}, maxRenewals),
		work: make(chan int64), idle: make(chan struct{}, 1), failed: make(chan error, 1),
	}
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
	defer close(k.work)
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
		if !k.assign(r.GetID()) {
			return
		}
	}
}

// assign has a TTL lease renewed by the goroutine that waits, or a new one. It
// returns false if the stream is over.
func (k *keepAlives) assign(id int64) bool {
	select {
	case k.work <- id:
		return true
	default:
	}
	select {
	case k.work <- id:
		return true
	case k.slots <- struct{}{}:
	case <-k.ctx.Done():
		return false
	}
	if !k.begin() {
		return false
	}
	go k.renewals(id)
	return true
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

package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const (
	// maxIdleStreams limits the idle streams to the leader. They count towards the leader's limit
	// of streams per connection.
	maxIdleStreams = 16
	// idleStreamTime is how long an idle stream is kept. If the leader allows few streams,
	// long-lived idle ones keep out streams that are needed.
	idleStreamTime = time.Second
)

// renewalForwarder renews TTL leases on the leader for clients of another member. Opening a
// stream costs as much as a renewal, so it keeps idle streams for a while.
type renewalForwarder struct{ idle chan *leaderStream }

func newRenewalForwarder() renewalForwarder {
	return renewalForwarder{make(chan *leaderStream, maxIdleStreams)}
}

// renew renews one TTL lease on the leader, to which conn connects.
func (f renewalForwarder) renew(ctx context.Context, conn grpc.ClientConnInterface, id int64) (int64, error) {
	if s := f.takeIdle(conn); s != nil {
		// The idle stream may have ended.
		if ttl, err := f.renewOn(ctx, s, id); err == nil || ctx.Err() != nil {
			return ttl, err
		}
	}
	s, err := openLeaderStream(ctx, conn)
	if err != nil {
		return 0, err
	}
	return f.renewOn(ctx, s, id)
}

// takeIdle returns an idle stream over conn, or nil.
func (f renewalForwarder) takeIdle(conn grpc.ClientConnInterface) *leaderStream {
	for {
		select {
		case s := <-f.idle:
			switch {
			case !s.idleTimer.Stop(): // the timer has cancelled it
			case s.conn == conn:
				return s
			default:
				s.cancel() // a stream to a former leader
			}
		default:
			return nil
		}
	}
}

// renewOn uses s and keeps it, unless the renewal failed or ctx has ended. After ctx has ended a
// late answer would be taken for that of the next request.
func (f renewalForwarder) renewOn(ctx context.Context, s *leaderStream, id int64) (int64, error) {
	stop := context.AfterFunc(ctx, s.cancel)
	ttl, err := s.renew(id)
	if !stop() || err != nil {
		s.cancel()
		return ttl, err
	}
	s.idleTimer = time.AfterFunc(idleStreamTime, s.cancel)
	select {
	case f.idle <- s:
	default:
		s.idleTimer.Stop()
		s.cancel()
	}
	return ttl, nil
}

// close ends the idle streams.
func (f renewalForwarder) close() {
	for {
		select {
		case s := <-f.idle:
			s.idleTimer.Stop()
			s.cancel()
		default:
			return
		}
	}
}

// leaderStream is a stream with at most one keep-alive in progress.
type leaderStream struct {
	stream    pb.Lease_LeaseKeepAliveClient
	conn      grpc.ClientConnInterface
	cancel    context.CancelFunc
	idleTimer *time.Timer // cancels the stream
}

// openLeaderStream opens a stream that outlives ctx. It waits at most until ctx ends.
func openLeaderStream(ctx context.Context, conn grpc.ClientConnInterface) (*leaderStream, error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(lasting)
	if !stop() && err == nil {
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &leaderStream{stream: stream, conn: conn, cancel: cancel}, nil
}

func (s *leaderStream) renew(id int64) (int64, error) {
	if err := s.stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	resp, err := s.stream.Recv() // returns the reason if Send has failed
	if err != nil {
		return 0, err
	}
	if resp.GetID() != id {
		return 0, fmt.Errorf("etcdapi: the leader was asked to renew TTL lease %016x and answered for %016x", id, resp.GetID())
	}
	return resp.GetTTL(), nil
}

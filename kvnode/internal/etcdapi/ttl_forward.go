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
	// maxIdleStreams bounds the streams to the leader that a member keeps. They count
	// among those that the leader allows on a connection.
	maxIdleStreams = 16
	// idleStreamTime is how long one is kept without use. Longer: where the leader
	// allows few, they keep out what does need one.
	idleStreamTime = time.Second
)

// renewalForwarder has the leader renew TTL leases for clients of another member. Making
// a stream costs as much as a renewal, so it keeps some for a while.
type renewalForwarder struct{ idle chan *leaderStream }

func newRenewalForwarder() renewalForwarder { return renewalForwarder{make(chan *leaderStream, maxIdleStreams)} }

// renew has the leader, to which conn goes, renew one TTL lease.
func (e renewalForwarder) renew(ctx context.Context, conn grpc.ClientConnInterface, id int64) (int64, error) {
	if s := e.takeIdle(conn); s != nil {
		// It may have ended since it was used last.
		if ttl, err := e.renewOn(ctx, s, id); err == nil || ctx.Err() != nil {
			return ttl, err
		}
	}
	s, err := openLeaderStream(ctx, conn)
	if err != nil {
		return 0, err
	}
	return e.renewOn(ctx, s, id)
}

// takeIdle returns a stream over conn that is not in use, or nil.
func (e renewalForwarder) takeIdle(conn grpc.ClientConnInterface) *leaderStream {
	for {
		select {
		case s := <-e.idle:
			switch {
			case !s.idleTimer.Stop(): // kept for too long
			case s.conn == conn:
				return s
			default:
				s.cancel() // it goes to whoever led before
			}
		default:
			return nil
		}
	}
}

// renewOn uses s, and keeps it unless it failed. Once ctx has ended it is not used
// again either: an answer that comes late is not one to the next question.
func (e renewalForwarder) renewOn(ctx context.Context, s *leaderStream, id int64) (int64, error) {
	stop := context.AfterFunc(ctx, s.cancel)
	ttl, err := s.renew(id)
	if !stop() || err != nil {
		s.cancel()
		return ttl, err
	}
	s.idleTimer = time.AfterFunc(idleStreamTime, s.cancel)
	select {
	case e.idle <- s:
	default:
		s.idleTimer.Stop()
		s.cancel()
	}
	return ttl, nil
}

// close ends what is kept.
func (e renewalForwarder) close() {
	for {
		select {
		case s := <-e.idle:
			s.idleTimer.Stop()
			s.cancel()
		default:
			return
		}
	}
}

// leaderStream is a stream on which one keep-alive at a time is under way.
type leaderStream struct {
	stream pb.Lease_LeaseKeepAliveClient
	conn   grpc.ClientConnInterface
	cancel context.CancelFunc
	idleTimer   *time.Timer // hangs up
}

// openLeaderStream makes a stream that outlives ctx, but does not wait longer than
// that.
func openLeaderStream(ctx context.Context, conn grpc.ClientConnInterface) (*leaderStream, error) {
	lasting, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, hangUp)
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(lasting)
	if !stop() && err == nil {
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		hangUp()
		return nil, err
	}
	return &leaderStream{stream: stream, conn: conn, cancel: hangUp}, nil
}

func (s *leaderStream) renew(id int64) (int64, error) {
	if err := s.stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	resp, err := s.stream.Recv() // says why, if Send has failed
	if err != nil {
		return 0, err
	}
	if resp.GetID() != id {
		return 0, fmt.Errorf("etcdapi: the leader was asked to renew TTL lease %016x and answers for %016x", id, resp.GetID())
	}
	return resp.GetTTL(), nil
}

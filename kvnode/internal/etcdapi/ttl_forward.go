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
	// maxSpare bounds the streams to the leader that a member keeps. They count
	// among those that the leader allows on a connection.
	maxSpare = 16
	// spareTime is how long one is kept without use. Longer: where the leader
	// allows few, they keep out what does need one.
	spareTime = time.Second
)

// elsewhere has the leader renew TTL leases for clients of another member. Making
// a stream costs as much as a renewal, so it keeps some for a while.
type elsewhere struct{ spare chan *leaderStream }

func newElsewhere() elsewhere { return elsewhere{make(chan *leaderStream, maxSpare)} }

// renew has the leader, to which conn goes, renew one TTL lease.
func (e elsewhere) renew(ctx context.Context, conn grpc.ClientConnInterface, id int64) (int64, error) {
	if s := e.take(conn); s != nil {
		// It may have ended since it was used last.
		if ttl, err := e.ask(ctx, s, id); err == nil || ctx.Err() != nil {
			return ttl, err
		}
	}
	s, err := openLeaderStream(ctx, conn)
	if err != nil {
		return 0, err
	}
	return e.ask(ctx, s, id)
}

// take returns a stream over conn that is not in use, or nil.
func (e elsewhere) take(conn grpc.ClientConnInterface) *leaderStream {
	for {
		select {
		case s := <-e.spare:
			switch {
			case !s.idle.Stop(): // kept for too long
			case s.conn == conn:
				return s
			default:
				s.hangUp() // it goes to whoever led before
			}
		default:
			return nil
		}
	}
}

// ask uses s, and keeps it unless it failed. Once ctx has ended it is not used
// again either: an answer that comes late is not one to the next question.
func (e elsewhere) ask(ctx context.Context, s *leaderStream, id int64) (int64, error) {
	stop := context.AfterFunc(ctx, s.hangUp)
	ttl, err := s.ask(id)
	if !stop() || err != nil {
		s.hangUp()
		return ttl, err
	}
	s.idle = time.AfterFunc(spareTime, s.hangUp)
	select {
	case e.spare <- s:
	default:
		s.idle.Stop()
		s.hangUp()
	}
	return ttl, nil
}

// close ends what is kept.
func (e elsewhere) close() {
	for {
		select {
		case s := <-e.spare:
			s.idle.Stop()
			s.hangUp()
		default:
			return
		}
	}
}

// leaderStream is a stream on which one keep-alive at a time is under way.
type leaderStream struct {
	stream pb.Lease_LeaseKeepAliveClient
	conn   grpc.ClientConnInterface
	hangUp context.CancelFunc
	idle   *time.Timer // hangs up
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
	return &leaderStream{stream: stream, conn: conn, hangUp: hangUp}, nil
}

func (s *leaderStream) ask(id int64) (int64, error) {
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

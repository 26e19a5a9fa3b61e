package client

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// interceptStream marks a stream of package fastkv for the picker, and learns from what comes
// back. All other streams go round.
func interceptStream(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != fastwire.Method {
		return open(ctx, d, cc, method, opts...)
	}
	c := &call{toLeader: true}
	s, err := open(context.WithValue(ctx, callKey{}, c), d, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &stream{s, c}, nil
}

type stream struct {
	grpc.ClientStream
	call *call
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	via := s.call.via.Load()
	if via == nil {
		return err
	}
	if raw, ok := m.(*fastwire.Raw); ok && err == nil {
		member, leader := fastwire.Who(*raw)
		via.known.answered(via.name, member, leader)
		if member != 0 && leader == 0 {
			via.known.failed(via.name, time.Now()) // it led, and is alone: another may know more
		}
	}
	if status.Code(err) == codes.Unavailable {
		via.known.failed(via.name, time.Now())
	}
	return err
}
